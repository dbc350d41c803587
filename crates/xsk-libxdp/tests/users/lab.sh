#!/usr/bin/env bash
# Runs programs of Debian's that use libxdp on it, and on weir's library by LD_PRELOAD: dpdk-testpmd forwards
# packets of a veth pair, Suricata inspects them, and programs of the tests do what Debian's do not. `./run libxdp --users` calls it as root.
# Each check is a line "ok NAME", or "not ok NAME" after the output.
#
# usage: lab.sh LIBRARY ROOT DIRECTORY
#
# LIBRARY is libweir-xdp.so, and beside it are the programs of ../libxdp; ROOT a Debian root with dpdk-dev, librte-net-af-xdp and suricata;
# DIRECTORY is made, for the lab's files.
set -euo pipefail

library=$(realpath "$1") root=$(realpath "$2") lab=$(realpath -m "$3")
here=$(dirname "$(realpath "$0")")
failed=0

if [[ -z ${LIBXDP_LAB-} ]]; then
    # Mounts, network namespaces and processes of its own, all gone with it, also when it is killed.
    exec env LIBXDP_LAB=1 unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private \
        "$0" "$@"
fi

peer_pid="" program_pid=""
# shellcheck disable=SC2317 # the trap's
end() {
    # Its children that still run.
    # shellcheck disable=SC2086 # none, or several
    kill $program_pid $peer_pid 2>/dev/null || true
    wait
    rm -rf "$lab"
}
trap end EXIT
# The first process of its namespace hears no signal without a trap.
trap 'exit 143' INT TERM

mkdir -p "$lab"
mount -t sysfs sysfs /sys
for directory in dev proc sys; do mount --rbind "/$directory" "$root/$directory"; done
# libxdp locks a directory there.
mount -t tmpfs none "$root/run"
install -m 644 "$library" "$root/usr/lib/libweir-xdp.so"
for program in errors sockets; do install "$(dirname "$library")/$program" "$root/usr/bin/xsk-$program"; done

# The peer is in a namespace of its own, which lasts as long as this process.
unshare --net sleep infinity &
peer_pid=$!
while [[ $(readlink "/proc/$peer_pid/ns/net") == $(readlink /proc/self/ns/net) ]]; do sleep 0.05; done
at_peer() { nsenter --net="/proc/$peer_pid/ns/net" "$@"; }

sysctl -qw net.ipv6.conf.all.disable_ipv6=1 2>/dev/null || true
ip link set lo up

queues=1
# make_device: a new one of so many queues, and one that is down, since the kernel frees old queues late.
make_device() {
    ip link delete wan0 2>/dev/null || true
    ip link delete down0 2>/dev/null || true
    ip link add down0 type veth peer name down1
    ip link add wan0 address 02:00:00:00:00:0a numrxqueues "$queues" numtxqueues "$queues" type veth \
        peer name peer0 address 02:00:00:00:00:0b numrxqueues "$queues" numtxqueues "$queues"
    ip link set peer0 netns "$peer_pid"
    ip link set wan0 up
    at_peer ip link set peer0 up
}

# The variables of a program, by the library.
environment() {
    # No dispatcher: it needs BPF trampolines, and a bpffs to be pinned on.
    if [[ $1 == libxdp ]]; then
        echo LIBXDP_SKIP_DISPATCHER=1
    else
        echo LD_PRELOAD=/usr/lib/libweir-xdp.so
    fi
}

# wait_for PATTERN: until the program says so.
wait_for() {
    local second
    for ((second = 0; second < 600; second++)); do
        if grep -q "$1" "$lab/log"; then return; fi
        kill -0 "$program_pid" 2>/dev/null || return
        sleep 0.1
    done
    return 1
}

# start LIBRARY COMMAND…: in the root.
start() {
    : >"$lab/log"
    make_device
    chroot "$root" env "$(environment "$1")" "${@:2}" </dev/null >"$lab/log" 2>&1 &
    program_pid=$!
}

# stop SIGNAL: and waits, also for the program to be detached.
stop() {
    kill "-$1" "$program_pid" 2>/dev/null || true
    # Bash would say that it was killed.
    { wait "$program_pid" || true; } 2>/dev/null
    program_pid=""
}

# uses LIBRARY: whether the running program has weir's library, if it should.
uses() {
    local mapped=libxdp
    ! grep -q libweir-xdp "/proc/$program_pid/maps" || mapped=weir
    [[ $mapped == "$1" ]]
}

report() {
    local name=$1 verdict=$2
    [[ $verdict == ok ]] || sed 's/^/#   | /' "$lab/log"
    echo "$verdict $name"
    [[ $verdict == ok ]] || failed=1
}

# No XDP program is left on the device.
is_clean() { ! ip link show dev wan0 2>/dev/null | grep -q 'xdp'; }

clean() {
    ! is_clean || return 0
    echo "#   the XDP program is left, and removed by hand"
    ip link set dev wan0 xdp off
}

# forwards NAME LIBRARY: packets that the peer sends come back.
forwards() {
    local verdict="not ok"
    echo "# $1"
    if uses "$2" && at_peer python3 "$here/../../../broker/tests/dpdk/peer.py" peer0 1000 >"$lab/back"; then
        verdict=ok
    fi
    sed 's/^/#   /' "$lab/back"
    stop INT
    clean
    report "$1" "$verdict"
}

# testpmd LIBRARY: starts it, until it forwards.
testpmd() {
    start "$1" dpdk-testpmd --no-huge --no-pci --no-shconf --no-telemetry -m 128 -l 0,1 \
        --vdev net_af_xdp0,iface=wan0 -- --no-mlockall --total-num-mbufs=8192 --auto-start \
        --forward-mode=macswap --nb-cores=1 --stats-period 1
    wait_for "start packet forwarding" || true
}

try_testpmd() {
    testpmd "$1"
    forwards "dpdk-testpmd forwards on $1" "$1"
}

# libxdp's program outlives a killed process, weir's does not.
try_killed_testpmd() {
    local verdict="not ok" second
    testpmd "$1"
    echo "# dpdk-testpmd killed on $1"
    if uses "$1" && ! is_clean; then verdict=ok; fi
    stop KILL
    # The kernel closes a killed process's sockets with a delay.
    for ((second = 0; second < 50; second++)); do
        ! is_clean || break
        sleep 0.1
    done
    [[ $1 != weir ]] || is_clean || verdict="not ok"
    clean
    report "dpdk-testpmd killed on $1" "$verdict"
}

# The later version of libxdp than that of the tests.
try_options() {
    start "$1" xsk-sockets opts wan0 1000
    wait_for ready || true
    forwards "a program with options forwards on $1" "$1"
}

# Compares the errors that the libraries have for bad calls.
try_errors() {
    local library verdict="not ok" queues=8
    for library in libxdp weir; do
        start "$library" sh -c "xsk-errors wan0 down0 2>/dev/null"
        wait "$program_pid" || true
        cp "$lab/log" "$lab/errors-$library"
    done
    program_pid=""
    echo "# $(wc -l <"$lab/errors-libxdp") bad calls"
    if diff "$lab/errors-libxdp" "$lab/errors-weir" >"$lab/log"; then verdict=ok; fi
    report "bad calls have libxdp's errors" "$verdict"
}

try_suricata() {
    local verdict="not ok" alerts=0 second
    rm -rf "$root/tmp/suricata"
    mkdir -p "$root/tmp/suricata"
    echo 'alert udp any any -> any any (msg:"a packet of the peer"; content:"number"; sid:1;)' \
        >"$root/tmp/suricata/rules"
    # Single: a veth does not tell Suricata its number of queues.
    start "$1" suricata --runmode single -c /etc/suricata/suricata.yaml -S /tmp/suricata/rules -l /tmp/suricata -k none \
        --af-xdp=wan0 --set af-xdp.0.interface=wan0
    wait_for "Engine started" || true
    echo "# Suricata inspects packets on $1"
    if uses "$1"; then
        at_peer python3 "$here/udp.py" peer0 1000
        for ((second = 0; second < 200; second++)); do
            alerts=$(grep -c "a packet of the peer" "$root/tmp/suricata/fast.log" || true)
            ((alerts < 1000)) || break
            sleep 0.1
        done
    fi
    echo "#   $alerts of 1000 packets found"
    ((alerts != 1000)) || verdict=ok
    stop INT
    clean
    report "Suricata inspects packets on $1" "$verdict"
}

for library in libxdp weir; do
    try_testpmd "$library"
    try_killed_testpmd "$library"
    try_suricata "$library"
    try_options "$library"
done
try_errors
exit "$failed"
