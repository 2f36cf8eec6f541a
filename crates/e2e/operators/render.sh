#!/usr/bin/env bash
# Prints the manifest of an operator: render.sh NAME. The charts and manifests are downloaded as Go modules, because these are
# checked against a checksum database and nothing has to be stored here. Charts are rendered without hooks, as `brokkr apply
# --helm` does. Needs go, helm ($HELM) and kubectl ($KUBECTL).

set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the folder of a module, which is read-only.
module() {
    printf 'module x\n' > "$work/go.mod"
    (cd "$work" && GOFLAGS=-mod=mod go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

# Makes a copy of a chart that can be changed.
copy() {
    cp -r "$1" "$work/$2"
    chmod -R u+w "$work/$2"
}

namespace() {
    printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n---\n' "$1"
}

# render NAME CHART NAMESPACE FLAGS…
render() {
    local name=$1 chart=$2 namespace=$3
    shift 3
    "${HELM:-helm}" template "$name" "$chart" -n "$namespace" --include-crds --no-hooks "$@"
}

case ${1-} in
cert-manager)
    source=$(module github.com/cert-manager/cert-manager@v1.21.2)
    copy "$source/deploy/charts/cert-manager" chart
    # The version is set when the chart is released.
    sed -i 's/^version: v0.0.0/version: v1.21.2/; s/^appVersion: v0.0.0/appVersion: v1.21.2/' "$work/chart/Chart.yaml"
    namespace cert-manager
    render cert-manager "$work/chart" cert-manager --set crds.enabled=true
    ;;
kyverno)
    source=$(module github.com/kyverno/kyverno@v1.19.1)
    # Two of its subcharts, in the versions that its go.mod names. The third one is disabled, and in no module.
    api=$(module github.com/kyverno/api@v0.0.1-alpha.3.0.20260723090831-fb2785727f98)
    reports=$(module github.com/openreports/reports-api@v0.2.1)
    copy "$source/charts/kyverno" chart
    copy "$api/charts/kyverno-api" chart/charts/kyverno-api
    copy "$reports/charts/openreports" chart/charts/openreports
    sed -i 's/^version: .*/version: 0.0.1-alpha.4/' "$work/chart/charts/kyverno-api/Chart.yaml"
    sed -i 's/^version: .*/version: 0.1.0/' "$work/chart/charts/openreports/Chart.yaml"
    sed -i '/^  - name: reports-server$/,$d' "$work/chart/Chart.yaml"
    rm "$work/chart/Chart.lock"
    namespace kyverno
    render kyverno "$work/chart" kyverno
    ;;
gatekeeper)
    source=$(module github.com/open-policy-agent/gatekeeper/v3@v3.23.1)
    # Its manifest contains the labels of the namespace that the chart sets with a hook.
    cat "$source/deploy/gatekeeper.yaml"
    ;;
external-secrets)
    source=$(module github.com/external-secrets/external-secrets@v1.3.2)
    copy "$source/deploy/charts/external-secrets" chart
    # The definitions are added when the chart is released. The only dependency is disabled.
    cp "$source/deploy/crds/bundle.yaml" "$work/chart/templates/crds/bundle.yaml"
    sed -i '/^dependencies:/,$d; s/^version: .*/version: 1.3.2/; s/^appVersion: .*/appVersion: v1.3.2/' "$work/chart/Chart.yaml"
    rm "$work/chart/Chart.lock"
    namespace external-secrets
    render external-secrets "$work/chart" external-secrets
    ;;
metrics-server)
    source=$(module sigs.k8s.io/metrics-server@v0.9.0)
    render metrics-server "$source/charts/metrics-server" kube-system
    ;;
argo-rollouts)
    source=$(module github.com/argoproj/argo-rollouts@v1.10.1)
    # Its objects have no namespace, but its binding names one.
    sed 's|/argo-rollouts:latest|/argo-rollouts:v1.10.1|' "$source/manifests/install.yaml" > "$work/install.yaml"
    namespace argo-rollouts > "$work/namespace.yaml"
    printf 'namespace: argo-rollouts\nresources: [namespace.yaml, install.yaml]\n' > "$work/kustomization.yaml"
    "${KUBECTL:-kubectl}" kustomize "$work"
    ;;
prometheus-operator)
    source=$(module github.com/prometheus-operator/prometheus-operator@v0.85.0)
    cat "$source/bundle.yaml"
    ;;
pgfleet | redkeep) cat "$here/$1.yaml" ;;
*)
    echo "render.sh: unknown operator ${1-}" >&2
    exit 2
    ;;
esac
