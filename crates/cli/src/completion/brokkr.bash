# Completion of brokkr for bash. Load it with: source <(brokkr completion bash)
_brokkr() {
    local line=${COMP_LINE:0:COMP_POINT} words=() candidate
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local typed=${words[-1]}
    # Bash replaces only the text after the last = or :, so candidates must not repeat the text before it.
    local head=${typed%"${typed##*[=:]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        [[ $candidate == "$typed"* ]] && COMPREPLY+=("${candidate#"$head"}")
    done < <("${words[0]}" __complete -- "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _brokkr brokkr
