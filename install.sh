#!/bin/sh
# Installs the CLI `brokkr` from a release, for Linux and macOS on amd64 and arm64:
#
#   curl -fsSL https://github.com/OWNER/brokkr/releases/latest/download/install.sh | sh
#
# Settings come from the environment:
#
#   BROKKR_VERSION    release to install, such as v0.1.0 (default: the latest)
#   BROKKR_BIN        directory to install into (default: ~/.local/bin)
#   BROKKR_RELEASES   URL of the releases, for a mirror
#   BROKKR_COSIGN     program that verifies signatures (default: cosign). If it is empty, signatures are not verified.
#
# The checksum of the archive is always verified. If cosign is installed, the signature of the checksums is verified as well.
# Nothing is installed if a verification fails.
#
# OWNER is a placeholder for the owner of the repository; .github/workflows/release.yaml replaces it.
#
# Not run yet on a release, because there is none. .ci/check-scripts tests the script with local archives.

set -eu

owner=OWNER

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

# Prints the name of the platform, as in the names of archives.
platform() {
    system=$(uname -s)
    machine=$(uname -m)
    case $system in
    Linux) system=linux ;;
    Darwin) system=darwin ;;
    *) fail "there is no release for the operating system $system; build brokkr from source" ;;
    esac
    case $machine in
    x86_64 | amd64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "there is no release for the architecture $machine; build brokkr from source" ;;
    esac
    printf '%s-%s\n' "$system" "$machine"
}

# Downloads a file of the release into the current directory.
download() {
    case $base in
    https://* | file://* | http://localhost:* | http://127.0.0.1:*) ;;
    *) fail "BROKKR_RELEASES must start with https://" ;;
    esac
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --proto-redir =https --output "$1" "$base/$1"
    elif command -v wget >/dev/null; then
        wget -q -O "$1" "$base/$1"
    else
        fail "install curl or wget first"
    fi || fail "failed to download $base/$1"
}

sha256() {
    if command -v sha256sum >/dev/null; then
        sha256sum "$1"
    elif command -v shasum >/dev/null; then
        shasum -a 256 "$1"
    else
        fail "install sha256sum or shasum first"
    fi | cut -d ' ' -f 1
}

verify_signature() {
    cosign=${BROKKR_COSIGN-cosign}
    if [ -z "$cosign" ] || ! command -v "$cosign" >/dev/null; then
        echo "cosign is not used: verifying only the checksum, not the signature"
        return
    fi
    download SHA256SUMS.sigstore.json
    "$cosign" verify-blob --new-bundle-format --bundle SHA256SUMS.sigstore.json \
        --certificate-identity-regexp "^https://github\\.com/$owner/brokkr/\\.github/workflows/release\\.yaml@refs/tags/v" \
        --certificate-oidc-issuer https://token.actions.githubusercontent.com SHA256SUMS ||
        fail "the signature of SHA256SUMS is not valid, or cosign is older than 2.4; nothing was installed"
}

verify_checksum() {
    expected=$(awk -v name="$1" '$2 == name || $2 == "*" name { print $1 }' SHA256SUMS)
    [ -n "$expected" ] || fail "SHA256SUMS does not list $1; nothing was installed"
    actual=$(sha256 "$1")
    [ "$actual" = "$expected" ] ||
        fail "the checksum of $1 is wrong; nothing was installed (expected $expected, got $actual)"
}

main() {
    if [ -z "${BROKKR_RELEASES:-}" ] && [ "$owner" = OWNER ]; then
        fail "there is no release yet; build brokkr from source: cargo build --release -p brokkr"
    fi
    releases=${BROKKR_RELEASES:-https://github.com/$owner/brokkr/releases}
    if [ -n "${BROKKR_VERSION:-}" ]; then
        base=${releases%/}/download/v${BROKKR_VERSION#v}
    else
        base=${releases%/}/latest/download
    fi
    bin=${BROKKR_BIN:-$HOME/.local/bin}
    archive=brokkr-$(platform).tar.gz

    scratch=$(mktemp -d)
    unfinished=
    # shellcheck disable=SC2154 # status is set in the trap itself
    trap 'status=$?; rm -rf "$scratch" ${unfinished:+"$unfinished"}; exit $status' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # A relative BROKKR_BIN is relative to the directory of the caller.
    case $bin in
    /*) ;;
    *) bin=$PWD/$bin ;;
    esac
    cd "$scratch"

    echo "Downloading $base/$archive"
    download SHA256SUMS
    download "$archive"
    verify_signature
    verify_checksum "$archive"
    tar -xzf "$archive" brokkr

    mkdir -p "$bin"
    unfinished=$bin/.brokkr.$$
    cp brokkr "$unfinished"
    chmod 755 "$unfinished"
    version=$("$unfinished" --version) || fail "the program does not run on this machine; nothing was installed"
    mv -f "$unfinished" "$bin/brokkr"
    echo "Installed $version as $bin/brokkr"
    case :$PATH: in
    *":$bin:"*) ;;
    *) echo "Add $bin to your PATH." ;;
    esac
}

# The script may be piped into sh. Everything is in functions, so an incomplete download does nothing.
main
