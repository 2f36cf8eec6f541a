#compdef brokkr
# Completion of brokkr for zsh. Load it with: source <(brokkr completion zsh), or as _brokkr in a folder of $fpath.
_brokkr() {
    local -a candidates
    local line
    for line in "${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( ${#candidates} )); then
        _describe -t brokkr brokkr candidates
    else
        _files
    fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _brokkr "$@"; else compdef _brokkr brokkr; fi
