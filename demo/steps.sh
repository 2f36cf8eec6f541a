#!/usr/bin/env bash
# Runs the steps of the demo on any clusters: lets them join a broker, deploys examples/hello, and shows drift correction and
# `brokkr why`. demo/kind.sh runs them on kind clusters; a test runs them on real nodes.
#
#   demo/steps.sh             run join, deploy, drift and why
#   demo/steps.sh STEP…       run these steps only: join, deploy, drift, why, remove
#
# Needs brokkr and kubectl. Settings come from the environment:
#
#   DEMO_CLUSTERS             required: the clusters as AGENT=CONTEXT, separated by spaces. CONTEXT is a context of kubectl.
#   DEMO_BROKER_URL           URL of the broker as seen from the clusters, if it differs from BROKKR_SERVER
#   DEMO_IMAGE                image to use in examples/hello, for nodes that cannot pull the one in the manifest
#   DEMO_TIMEOUT              maximum time to wait for an agent or for a deployment, such as 90s (default: 5m)
#   KUBECONFIG                read by kubectl
#   BROKKR_SERVER, BROKKR_CA_FILE, BROKKR_TOKEN_FILE
#                             read by brokkr: broker and credential. Without them, the current login is used.
#   BROKKR_AGENT_IMAGE        read by brokkr: image of the agent

set -euo pipefail

demo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly demo_root
readonly demo_label=env=demo

# ── output and waiting ──

fail() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

# Runs a function as a step, with a title before it and its duration after it.
step() {
    local title=$1 started=$SECONDS
    shift
    printf '\n== %s\n' "$title"
    "$@"
    printf '== %s: done after %d s\n' "$title" $((SECONDS - started))
}

# Prints a command as a user would type it, and runs it.
run() {
    local word line='$'
    for word in "$@"; do
        if [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then
            line+=" $word"
        else
            line+=" '$word'"
        fi
    done
    printf '%s\n' "$line"
    "$@"
}

# Repeats a command every second until it succeeds. After this many attempts, prints its last output and fails.
eventually() {
    local attempts=$1 attempt output
    shift
    for ((attempt = 1; attempt <= attempts; attempt++)); do
        if output=$("$@" 2>&1); then
            return
        fi
        sleep 1
    done
    printf 'demo: gave up after %d attempts: %s: %s\n' "$attempts" "$*" "$output" >&2
    return 1
}

# Checks that programs are installed. Each argument is NAME=HINT. Reports everything that is missing at once.
need() {
    local program missing=0
    for program in "$@"; do
        if ! command -v "${program%%=*}" >/dev/null; then
            printf 'demo: %s is not installed: %s\n' "${program%%=*}" "${program#*=}" >&2
            missing=1
        fi
    done
    if ((missing)); then
        exit 1
    fi
}

# ── steps ──

# The first and the last entry of DEMO_CLUSTERS.
first_cluster=
last_cluster=

agent_of() {
    printf '%s\n' "${1%%=*}"
}

context_of() {
    printf '%s\n' "${1#*=}"
}

join() {
    local cluster agent command
    for cluster in $DEMO_CLUSTERS; do
        agent=$(agent_of "$cluster")
        if brokkr agent show "$agent" >/dev/null 2>&1; then
            echo "$agent: has already joined"
            continue
        fi
        command=(brokkr agent join "$agent" --label "$demo_label" --kube-context "$(context_of "$cluster")"
            --timeout "$demo_timeout")
        if [[ -n ${DEMO_BROKER_URL:-} ]]; then
            command+=(--broker-url "$DEMO_BROKER_URL")
        fi
        run "${command[@]}"
    done
    run brokkr agent list -l "$demo_label"
}

# Prints the manifests of the example, with the image in DEMO_IMAGE if it is set.
manifests() {
    local file
    for file in "$demo_root"/examples/hello/*.yaml; do
        echo ---
        cat "$file"
    done | if [[ -n ${DEMO_IMAGE:-} ]]; then
        sed "s|^\( *image: \).*|\1$DEMO_IMAGE|"
    else
        cat
    fi
}

deploy() {
    local options=(--to "$demo_label" --wait=rollout --timeout "$demo_timeout") cluster
    if [[ -n ${DEMO_IMAGE:-} ]]; then
        echo "examples/hello, with the image $DEMO_IMAGE:"
        manifests | run brokkr apply hello -f - "${options[@]}"
        run brokkr status hello
        # This image need not serve HTTP.
        return
    fi
    local example="$demo_root/examples/hello"
    run brokkr apply hello -f "${example#"$PWD/"}" "${options[@]}"
    run brokkr status hello
    for cluster in $DEMO_CLUSTERS; do
        request "$(context_of "$cluster")"
    done
}

# Sends a request to the Service of the example, through the API server of its cluster.
request() {
    local path=/api/v1/namespaces/hello/services/hello:http/proxy/
    local kubectl=(kubectl --context "$1" get --raw "$path")
    # A container without a readiness probe is ready slightly before it listens.
    eventually 30 "${kubectl[@]}"
    run "${kubectl[@]}" | sed '/^RemoteAddr:/,$d'
}

# Changes the Deployment in the first cluster, deletes it in the last one, and waits until the agents have restored it.
drift() {
    local kubectl=(kubectl --context "$(context_of "$first_cluster")" -n hello)
    local generation=(get deployment hello -o 'jsonpath={.metadata.generation}')
    local before after
    before=$("${kubectl[@]}" "${generation[@]}")
    run "${kubectl[@]}" scale deployment hello --replicas=1
    run "${kubectl[@]}" wait deployment/hello '--for=jsonpath={.spec.replicas}=3' --timeout=30s
    # Each change of the spec increments the generation: once for the scaling, and once for the correction.
    after=$("${kubectl[@]}" "${generation[@]}")
    ((after >= before + 2)) || fail "the Deployment was not changed twice: generation $before, then $after"

    kubectl=(kubectl --context "$(context_of "$last_cluster")" -n hello)
    local uid=(get deployment hello -o 'jsonpath={.metadata.uid}')
    before=$("${kubectl[@]}" "${uid[@]}")
    run "${kubectl[@]}" delete deployment hello
    eventually 30 "${kubectl[@]}" "${uid[@]}"
    after=$("${kubectl[@]}" "${uid[@]}")
    [[ $before != "$after" ]] || fail "the Deployment was not deleted"
    run "${kubectl[@]}" wait deployment/hello --for=condition=Available --timeout=60s
    run brokkr wait hello --timeout "$demo_timeout"
    run brokkr status hello
}

# Explains a healthy stack, then submits a change that Kubernetes rejects, explains it, and rolls it back.
why() {
    local agent status=0
    agent=$(agent_of "$first_cluster")
    run brokkr why hello --agent "$agent"
    echo "examples/hello, with another selector in the Deployment, which Kubernetes rejects:"
    manifests | sed '/^kind: Deployment$/,/^---$/s/app: hello/app: goodbye/' |
        run brokkr apply hello -f - --wait --timeout "$demo_timeout" || status=$?
    # 3: the operation failed on an agent.
    ((status == 3)) || fail "expected the exit code 3 of a failed version, got $status"
    run brokkr why hello --agent "$agent"
    # Without --no-bar, the broker would refuse this change if the demo ran again.
    run brokkr rollback hello --no-bar --yes --wait --timeout "$demo_timeout"
}

remove() {
    run brokkr stack delete hello --yes --wait --timeout "$demo_timeout"
}

# ── main ──

# Reads the settings, and checks what the steps need.
prepare_steps() {
    need 'brokkr=docs/how-to/try-the-demo.md says how to get it' 'kubectl=see https://kubernetes.io/docs/tasks/tools/'
    demo_timeout=${DEMO_TIMEOUT:-5m}
    [[ -n ${DEMO_CLUSTERS:-} ]] || fail "DEMO_CLUSTERS is not set; set it to AGENT=CONTEXT for each cluster"
    local cluster context
    for cluster in $DEMO_CLUSTERS; do
        [[ $cluster == ?*=?* ]] || fail "DEMO_CLUSTERS: $cluster does not have the form AGENT=CONTEXT"
        first_cluster=${first_cluster:-$cluster}
        last_cluster=$cluster
        context=$(context_of "$cluster")
        kubectl --context "$context" get --raw /readyz >/dev/null || fail "kubectl cannot reach the context $context"
    done
}

run_steps() {
    local name
    for name in "$@"; do
        case $name in
        join) step 'join the clusters' join ;;
        deploy) step 'deploy examples/hello' deploy ;;
        drift) step 'correct drift' drift ;;
        why) step 'explain a failure' why ;;
        remove) step 'remove the stack' remove ;;
        *) fail "there is no step $name; the steps are join, deploy, drift, why and remove" ;;
        esac
    done
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    if (($# == 0)); then
        set -- join deploy drift why
    fi
    prepare_steps
    run_steps "$@"
    printf '\nAll steps done after %d s.\n' "$SECONDS"
fi
