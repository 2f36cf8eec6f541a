#!/usr/bin/env bash
# Runs the demo on this machine: two kind clusters, PostgreSQL and a broker in containers, and the steps of demo/steps.sh.
#
#   demo/kind.sh          start everything and run the steps; after an interruption, run it again
#   demo/kind.sh down     remove the clusters, the containers with their data, and the settings in target/demo
#
# Needs docker with the plugin compose, kind, kubectl and brokkr. Settings come from the environment:
#
#   BROKKR_BROKER_IMAGE   image of the broker (default: brokkr-broker:0.1.0)
#   BROKKR_AGENT_IMAGE    image of the agent (default: brokkr-agent:0.1.0)
#   DEMO_PORT             port of the broker on this machine (default: 8780)
#   DEMO_IMAGE, DEMO_TIMEOUT   as in demo/steps.sh
#
# An image with a / in its name is pulled. Any other image that Docker does not have is loaded from target/images if
# `cargo xtask image` was run, and otherwise built with the Containerfile.
#
# How the clusters reach the broker: kind connects its nodes to the Docker network `kind`. This script connects the broker's
# container to that network under the name brokkr-broker. CoreDNS in a kind cluster forwards unknown names to Docker's DNS
# server, so Pods can resolve this name.
#
# Not run yet: no Docker daemon was available where this script was written.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=demo/steps.sh
. demo/steps.sh

readonly agents=(shop-1 shop-2)
readonly settings=target/demo
readonly port=${DEMO_PORT:-8780}
export DEMO_PORT=$port
export DEMO_BROKER_NAME=brokkr-broker
export BROKKR_BROKER_IMAGE=${BROKKR_BROKER_IMAGE:-brokkr-broker:0.1.0}
export BROKKR_AGENT_IMAGE=${BROKKR_AGENT_IMAGE:-brokkr-agent:0.1.0}

compose() {
    docker compose -f demo/compose.yaml "$@"
}

cluster_of() {
    printf 'brokkr-%s\n' "$1"
}

check() {
    need 'docker=see https://docs.docker.com/engine/install/' 'kind=see https://kind.sigs.k8s.io/#installation-and-usage' "$@"
    docker compose version >/dev/null 2>&1 || fail "docker has no plugin compose: see https://docs.docker.com/compose/install/"
    docker info >/dev/null 2>&1 || fail "docker cannot reach its daemon: start it, or check your permissions with \`docker info\`"
}

# ── images ──

is_pulled() {
    [[ $1 == */* ]]
}

provide_images() {
    provide_image brokkr-broker "$BROKKR_BROKER_IMAGE"
    provide_image brokkr-agent "$BROKKR_AGENT_IMAGE"
}

provide_image() {
    local name=$1 image=$2 layout=target/images/$1
    if is_pulled "$image"; then
        echo "$image: pulled from its registry when it is needed"
    elif docker image inspect "$image" >/dev/null 2>&1; then
        echo "$image: found"
    elif [[ -f $layout/index.json ]]; then
        echo "$image: loading $layout"
        load_layout "$layout" "$image"
    else
        echo "$image: building it; this compiles Brokkr and takes many minutes"
        # Attestations would turn the image into an index, which `kind load` cannot always import.
        BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build -f Containerfile --target "$name" -t "$image" .
    fi
}

# Loads an image from the OCI layout that `cargo xtask image` writes. `docker load` needs Docker's own archive format: the same
# blobs, and a manifest.json that names them.
load_layout() {
    local layout=$1 image=$2 blobs=blobs/sha256 manifest config layer scratch
    manifest=$(digests "$layout/index.json")
    { read -r config && read -r layer; } < <(digests "$layout/$blobs/$manifest") || fail "$layout is not an image with one layer"
    scratch=$(mktemp -d)
    printf '[{"Config":"%s","RepoTags":["%s"],"Layers":["%s"]}]' "$blobs/$config" "$image" "$blobs/$layer" >"$scratch/manifest.json"
    tar -cf "$scratch/image.tar" -C "$scratch" manifest.json -C "$PWD/$layout" "$blobs/$config" "$blobs/$layer"
    docker load --quiet -i "$scratch/image.tar"
    rm -rf "$scratch"
}

# Prints the digests in a JSON document, in their order: in a manifest, the configuration comes before the layers.
digests() {
    grep -o '"digest":"sha256:[0-9a-f]*"' "$1" | sed 's/.*:\([0-9a-f]*\)"/\1/'
}

# ── clusters and broker ──

create_clusters() {
    local agent cluster
    for agent in "${agents[@]}"; do
        cluster=$(cluster_of "$agent")
        if kind get clusters 2>/dev/null | grep -qx "$cluster"; then
            echo "$cluster: found"
            kind export kubeconfig --name "$cluster" --kubeconfig "$KUBECONFIG"
        else
            kind create cluster --name "$cluster" --kubeconfig "$KUBECONFIG" --wait 3m
        fi
        if ! is_pulled "$BROKKR_AGENT_IMAGE"; then
            kind load docker-image "$BROKKR_AGENT_IMAGE" --name "$cluster"
        fi
    done
}

start_broker() {
    compose up --detach --wait
    local container
    container=$(compose ps --quiet broker)
    if [[ -z $(docker inspect --format '{{with .NetworkSettings.Networks.kind}}connected{{end}}' "$container") ]]; then
        docker network connect --alias "$DEMO_BROKER_NAME" kind "$container"
    fi
    # The broker writes the token after it has created the schema.
    if ! eventually 60 compose cp broker:/evaluation/admin-token "$BROKKR_TOKEN_FILE"; then
        compose logs --tail 20 broker >&2
        fail "the broker has not started; its last log lines are above"
    fi
    compose cp broker:/evaluation/ca.pem "$BROKKR_CA_FILE"
    chmod 600 "$BROKKR_TOKEN_FILE"
    run brokkr whoami
}

# Writes a file to source, so that brokkr and kubectl use the demo.
write_settings() {
    local name
    for name in BROKKR_SERVER BROKKR_CA_FILE BROKKR_TOKEN_FILE KUBECONFIG; do
        printf 'export %s=%q\n' "$name" "${!name}"
    done >"$settings/env"
}

# ── main ──

up() {
    check 'kubectl=see https://kubernetes.io/docs/tasks/tools/' 'brokkr=docs/how-to/try-the-demo.md says how to get it'
    (umask 077 && mkdir -p "$settings")
    # The demo uses neither the user's login nor the user's kubeconfig.
    unset BROKKR_CONTEXT BROKKR_TOKEN BROKKR_PROJECT BROKKR_OUTPUT
    export BROKKR_SERVER=https://localhost:$port
    export BROKKR_CA_FILE=$PWD/$settings/ca.pem
    export BROKKR_TOKEN_FILE=$PWD/$settings/admin-token
    export KUBECONFIG=$PWD/$settings/kubeconfig
    local agent
    DEMO_CLUSTERS=
    for agent in "${agents[@]}"; do
        DEMO_CLUSTERS+="$agent=kind-$(cluster_of "$agent") "
    done
    DEMO_BROKER_URL=https://$DEMO_BROKER_NAME:8780
    export DEMO_CLUSTERS DEMO_BROKER_URL

    step 'provide the images' provide_images
    step 'create two kind clusters' create_clusters
    step 'start PostgreSQL and the broker' start_broker
    write_settings
    prepare_steps
    run_steps join deploy drift why
    cat <<EOF

The demo is complete after $SECONDS s. To continue, load its settings:

  . $settings/env
  brokkr status hello
  kubectl --context kind-$(cluster_of "${agents[0]}") -n hello get pods

To remove everything: demo/kind.sh down
EOF
}

remove_clusters() {
    local agent
    for agent in "${agents[@]}"; do
        kind delete cluster --name "$(cluster_of "$agent")" --kubeconfig "$PWD/$settings/kubeconfig"
    done
}

remove_broker() {
    compose down --volumes
    rm -rf "$settings"
}

down() {
    check
    step 'remove the clusters' remove_clusters
    step 'remove PostgreSQL and the broker' remove_broker
}

case ${1:-up} in
up) up ;;
down) down ;;
*) fail "unknown command $1; use demo/kind.sh or demo/kind.sh down" ;;
esac
