# Holds what a cluster of real nodes needs from the kernel until SIGTERM, which the kernel also sends when the test dies.
#
#   network BRIDGE ADDRESS/BITS [DESTINATION VIA]...    a bridge on the host, and routes to what is behind the nodes
#   node NAME BRIDGE ADDRESS/BITS GATEWAY PID_FILE INIT [DESTINATION VIA]...
#                                                       the namespaces of one node, with INIT as their first process
#
# A node has namespaces of its own for processes, mounts and network. When its first process ends, the kernel kills every
# container and removes every mount, interface and firewall rule with it. Only control groups have to be removed by hand.
set -euo pipefail

add_routes() {
    while (($#)); do
        "${enter[@]}" ip route add "$1" via "$2"
        shift 2
    done
}

# Waits for a signal without a child that could be left behind.
hold() {
    echo ready
    exec {never}<> <(:)
    while :; do
        read -r -t 3600 -u "$never" || true
    done
}

network() {
    local address=$1
    shift
    trap 'ip link delete "$bridge"' EXIT
    ip link add "$bridge" type bridge
    ip address add "$address" dev "$bridge"
    ip link set "$bridge" up
    enter=()
    add_routes "$@"
    hold
}

control_groups() {
    if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
        echo /sys/fs/cgroup
    else
        printf '%s\n' /sys/fs/cgroup/*/ | sed 's|/$||'
    fi
}

remove_node() {
    trap '' TERM INT
    if [[ -n $holder ]]; then
        kill -KILL "$holder" 2>/dev/null || true
        wait "$holder" || true
    fi
    ip link delete "$name" 2>/dev/null || true
    local group attempt
    for attempt in {1..100}; do
        for group in $(control_groups); do
            [[ ! -d $group/$name ]] || find "$group/$name" -depth -type d -exec rmdir {} + 2>/dev/null || true
        done
        compgen -G "/sys/fs/cgroup/*/$name" >/dev/null || compgen -G "/sys/fs/cgroup/$name" >/dev/null || return 0
        sleep 0.05
    done
}

node() {
    local bridge=$1 address=$2 gateway=$3 pid_file=$4 init=$5 group
    shift 5
    holder=""
    trap remove_node EXIT
    for group in $(control_groups); do
        mkdir "$group/$name"
    done
    # Programs of the node write into these folders at fixed paths.
    unshare --mount --pid --net --fork --kill-child=KILL --mount-proc --propagation private -- bash -euc '
        mount --make-rshared /
        for folder in /run /var/lib /var/log; do mount -t tmpfs tmpfs "$folder"; done
        # The name servers of the host are out of reach: without them, names fail at once.
        [[ ! -e /etc/resolv.conf ]] || mount --bind /dev/null /etc/resolv.conf
        exec "$0"' "$init" &
    holder=$!
    local first=""
    until [[ -n $first ]]; do
        kill -0 "$holder"
        read -r first <"/proc/$holder/task/$holder/children" || true
        first=${first%% *}
    done
    ip link add "$name" type veth peer name eth0 netns "$first"
    ip link set "$name" master "$bridge" up
    enter=(nsenter --target "$first" --net)
    "${enter[@]}" ip link set lo up
    "${enter[@]}" ip address add "$address" dev eth0
    "${enter[@]}" ip link set eth0 up
    "${enter[@]}" ip route add default via "$gateway"
    "${enter[@]}" bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    add_routes "$@"
    echo "$first" >"$pid_file"
    hold
}

# The kernel sends the signal once for each thread of the test that dies, and cleaning up must not be interrupted.
trap 'trap "" TERM INT; exit' TERM INT
what=$1
shift
case $what in
network) bridge=$1 && shift && network "$@" ;;
node) name=$1 && shift && node "$@" ;;
esac
