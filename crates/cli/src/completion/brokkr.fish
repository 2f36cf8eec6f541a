# Completion of brokkr for fish. Load it with: brokkr completion fish | source
function __brokkr_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l candidates ($words[1] __complete -- $words[2..] "$typed" 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path "$typed"
    end
end
complete -c brokkr -f -a '(__brokkr_complete)'
