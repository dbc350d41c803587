#!/usr/bin/env bash
# Runs DPDK as a client of the broker: dpdk-testpmd forwards packets of a veth pair as an ordinary user, by
# the device plugin's socket and by a pinned map. `./run dpdk` calls it as root. Each check is a line
# "ok NAME", or "not ok NAME" after the output.
#
# usage: lab.sh BROKER ROOT DIRECTORY
#
# BROKER is weir-broker, and beside it lies weir.
#
# ROOT is a Debian root with dpdk-dev and librte-net-af-xdp; DIRECTORY is made, for the lab's files.
set -euo pipefail

broker=$(realpath "$1") root=$(realpath "$2") lab=$(realpath -m "$3")
here=$(dirname "$(realpath "$0")")
failed=0
supervisor=() # the command before testpmd's

if [[ -z ${DPDK_LAB-} ]]; then
    # Mounts and network namespaces of its own, gone with it.
    exec env DPDK_LAB=1 unshare --mount --net --propagation private "$0" "$@"
fi

broker_pid="" peer_pid=""
# shellcheck disable=SC2317 # the trap's
end() {
    # Its children that still run.
    # shellcheck disable=SC2086 # none, or several
    kill $broker_pid $peer_pid 2>/dev/null || true
    wait
    umount --lazy "$lab/bpffs" 2>/dev/null || true
    rm -rf "$lab"
}
trap end EXIT

mkdir -p "$lab"
chmod 755 "$lab"
mount -t sysfs sysfs /sys
mkdir -p "$lab"/{bpffs,plugin} "$root/tmp/afxdp_dp"
for directory in dev proc sys; do mount --rbind "/$directory" "$root/$directory"; done

# The peer is in a namespace of its own, which lasts as long as this process.
unshare --net sleep infinity &
peer_pid=$!
while [[ $(readlink "/proc/$peer_pid/ns/net") == $(readlink /proc/self/ns/net) ]]; do sleep 0.05; done
at_peer() { nsenter --net="/proc/$peer_pid/ns/net" "$@"; }

ip link add wan0 address 02:00:00:00:00:0a numrxqueues 1 numtxqueues 1 type veth \
    peer name peer0 address 02:00:00:00:00:0b numrxqueues 1 numtxqueues 1
ip link set peer0 netns "$peer_pid"
ip link set wan0 up
at_peer ip link set peer0 up

# start_broker KEYS…: of the grant.
start_broker() {
    {
        printf '%s\n' '[[tenant]]' 'name = "dpdk"' 'uid = 65534' '[[tenant.device]]' 'name = "wan0"' \
            'queues = 0' 'lease = ["rx", "tx"]' 'plugin = true' "$@"
    } >"$lab/policy.toml"
    "$broker" --policy "$lab/policy.toml" --socket "$lab/broker.sock" --oci-socket "$lab/oci.sock" \
        --admin "$lab/admin.sock" --metrics "$lab/metrics.sock" --state "$lab/state" --bpffs "$lab/bpffs" \
        --plugin-dir "$lab/plugin" --everyone 2>"$lab/log" &
    broker_pid=$!
    while [[ ! -S $lab/plugin/wan0/afxdp.sock || ! -S $lab/metrics.sock ]]; do
        kill -0 "$broker_pid" || return
        sleep 0.05
    done
    # Where DPDK looks, and the target of the map's link.
    mkdir -p "$root/tmp/afxdp_dp" "$root$lab"
    mount --rbind "$lab/plugin" "$root/tmp/afxdp_dp"
    mount --rbind "$lab" "$root$lab"
}

stop_broker() {
    umount --recursive "$root/tmp/afxdp_dp" "$root$lab"
    kill "$broker_pid"
    wait "$broker_pid" || return
    broker_pid=""
}

# testpmd CAPABILITIES ARGUMENTS: forwards, as nobody.
testpmd() {
    exec chroot "$root" setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
        "--bounding-set=-all$1" "--inh-caps=-all$1" "--ambient-caps=-all$1" \
        ${supervisor[@]+"${supervisor[@]}"} dpdk-testpmd --no-huge --no-pci --no-shconf --no-telemetry -m 128 -l 0,1 \
        --log-level=pmd.net.af_xdp:debug --vdev "net_af_xdp0,iface=wan0,$2" -- \
        --no-mlockall --total-num-mbufs=8192 --auto-start --forward-mode=macswap --nb-cores=1 \
        --stats-period 1
}

# try NAME EXPECTED CAPABILITIES ARGUMENTS: EXPECTED is "forwards", or a pattern of testpmd's output instead.
try() {
    local name=$1 expected=$2 second line pid verdict="not ok"
    testpmd "${@:3}" </dev/null >"$lab/testpmd" 2>&1 &
    pid=$!
    for ((second = 0; second < 100; second++)); do
        if grep -q "start packet forwarding" "$lab/testpmd" || ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.1
    done
    echo "# $name"
    if [[ $expected == forwards ]]; then
        ! at_peer python3 "$here/peer.py" peer0 1000 >"$lab/back" || verdict=ok
        sed 's/^/#   /' "$lab/back"
    elif line=$(grep -m 1 "$expected" "$lab/testpmd"); then
        echo "#   $line"
        verdict=ok
    fi
    kill -INT "$pid" 2>/dev/null || true
    wait "$pid" || true
    [[ $verdict == ok ]] || sed 's/^/#   | /' "$lab/testpmd" "$lab/log"
    echo "$verdict $name"
    [[ $verdict == ok ]] || failed=1
}

cni=use_cni=1,dp_path=/tmp/afxdp_dp/wan0/afxdp.sock
pinned=use_pinned_map=1,dp_path=/tmp/afxdp_dp/wan0/xsks_map

start_broker
try "by the socket, with CAP_NET_RAW and CAP_IPC_LOCK" forwards ,+net_raw,+ipc_lock "$cni"
# Its mbufs are in a page each, and 2048 of them are in the FILL ring: 8 MiB, all of an ordinary limit.
try "CAP_IPC_LOCK is for the UMEM, unless RLIMIT_MEMLOCK is higher" \
    "Failed to create umem.*No buffer space available" ,+net_raw "$cni"
try "CAP_NET_RAW is for the AF_XDP socket" \
    "Failed to create umem.*Operation not permitted" ,+ipc_lock "$cni"
stop_broker
start_broker "pinned-map = true"
try "by the pinned map, with CAP_NET_RAW and CAP_IPC_LOCK" forwards ,+net_raw,+ipc_lock "$pinned"
stop_broker
install -m 755 "$(dirname "$broker")/weir" "$root/usr/bin/weir"
supervisor=(weir run --broker "$lab/broker.sock" --)
start_broker 'memory = "64 MiB"' "[tenant.calls]" "af-xdp = true"
try "by the socket under weir run, without CAP_NET_RAW" forwards ,+ipc_lock "$cni"
stop_broker
exit "$failed"
