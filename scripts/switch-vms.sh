#!/usr/bin/env bash
# Two virtual machines on taps of a bridge, and the packets between them that are lost in events: a port's or a
# machine's, and those of the accelerator. `./run switch vms` runs it in namespaces of its own, of which nothing is
# left when it ends, however it does: unshare --net --mount --pid --fork --kill-child.
#
#     switch-vms.sh GUEST_DIR IMAGE WEIR MODES OFFLOADS RESULTS -- QEMU…
#
# MODES are of bridge and weir, OFFLOADS of on and off. A line of RESULTS: offloads, mode, event, stream, sent, received.
set -euo pipefail

guest_dir=$1 image=$2 weir=$3 modes=$4 offloads=$5 results=$6
shift 7
qemu=("$@")
bridge=br0
seconds=6 # of each load; its event is in the middle
long_seconds=14
daemon=""
mode="" offload=""
declare -A machines consoles inputs monitors
identifier=0

say() { printf '%s\n' "$*" >&2; }
die() {
    say "error: $*"
    for number in "${!consoles[@]}"; do tail -n 20 "${consoles[$number]}" | sed "s/^/VM $number: /" >&2; done
    exit 1
}

# Nothing of this machine's, and nothing of here there.
prepare() {
    mount -t proc proc /proc
    mount -t tmpfs tmpfs /run
    work=/run/machines
    mkdir /run/weir "$work"
    mount -t sysfs sysfs /sys
    mount -t bpf bpf /sys/fs/bpf
    sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 || true
    ip link set lo up
    ip link add "$bridge" type bridge mcast_snooping 0
    ip link set "$bridge" up
}

tap() {
    ip tuntap add dev "$1" mode tap
    ip link set "$1" master "$bridge" up
}

# The cards of machine 1: a0; of machine 2: b0 and b1. With offloads, packets come with partial checksums and
# in segments of up to 64 KiB, as a hypervisor has it without other words.
card_options() {
    [[ $offload == on ]] || printf ',csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=off'
}

# card NUMBER NAME INDEX: the words of QEMU for it.
card() {
    printf '%s\n' -netdev "tap,id=n$2,ifname=$2,script=no,downscript=no,vhost=off" \
        -device "virtio-net-pci,id=d$2,netdev=n$2,romfile=,mac=02:00:00:00:0$1:0$3$(card_options)"
}

# start NUMBER CARD…
start() {
    local number=$1 name index=0 words=()
    shift
    for name in "$@"; do
        mapfile -t -O "${#words[@]}" words < <(card "$number" "$name" "$index")
        index=$((index + 1))
    done
    consoles[$number]=$work/console$number
    mkfifo "$work/input$number" "$work/monitor$number.in" "$work/monitor$number.out"
    exec {input}<>"$work/input$number" {monitor}<>"$work/monitor$number.in" {answers}<>"$work/monitor$number.out"
    inputs[$number]=$input monitors[$number]=$monitor
    # Its answers are read by nobody who waits for them.
    cat <&"$answers" >"$work/monitor$number.log" &
    "${qemu[@]}" -smp 1 -m 256 -kernel "$guest_dir/vmlinuz" -initrd "$image" \
        -append "console=ttyS0 loglevel=1 panic=-1 nokaslr weir.run=switch-vm weir.seconds=3600" \
        -monitor "pipe:$work/monitor$number" "${words[@]}" <&"$input" >"${consoles[$number]}" 2>&1 &
    machines[$number]=$!
}

# wait_for NUMBER PATTERN SECONDS
wait_for() {
    local end=$((SECONDS + $3 * ${WEIR_TEST_SCALE:-1}))
    until grep -qE "$2" "${consoles[$1]}"; do
        ((SECONDS < end)) || die "VM $1 did not say '$2' within $3 s"
        kill -0 "${machines[$1]}" 2>/dev/null || die "VM $1 has ended"
        sleep 0.1
    done
}

# ask NUMBER WORDS…: without waiting for its answer, whose number is in identifier.
ask() {
    identifier=$((identifier + 1))
    printf '%s %s\n' "$identifier" "${*:2}" >&"${inputs[$1]}"
}

# answer NUMBER IDENTIFIER SECONDS
answer() {
    wait_for "$1" "^vm: end $2 " "$3"
    tr -d '\r' <"${consoles[$1]}" | sed -n "/^vm: begin $2\$/,/^vm: end $2 /p"
}

tell() {
    ask "$@"
    answer "$1" "$identifier" 30
}

# The daemon, in the modes that have one.
start_daemon() {
    "$weir" switch run >>"$work/daemon" 2>&1 &
    daemon=$!
}

daemon_answers() {
    local try
    for try in {1..50}; do
        ! "$weir" switch status >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    die "the daemon does not answer after $try tries: $(tail -n 5 "$work/daemon")"
}

end_daemon() {
    kill "-$1" "$daemon"
    wait "$daemon" 2>/dev/null || true
}

# The events, each while packets flow.
event_none() { :; }
event_move() {
    tell 2 active eth1 >/dev/null
}
event_move_back() {
    tell 2 active eth0 >/dev/null
}
# The card in use goes with its tap, as a hypervisor does it; then it comes back.
event_unplug() {
    printf 'device_del db0\n' >&"${monitors[2]}"
    sleep 1
    printf 'netdev_del nb0\n' >&"${monitors[2]}"
    sleep 0.5
    ip link del b0 || true
}
event_plug() {
    tap b0
    printf 'netdev_add tap,id=nb0,ifname=b0,script=no,downscript=no,vhost=off\n' >&"${monitors[2]}"
    printf 'device_add virtio-net-pci,id=db0,netdev=nb0,romfile=,mac=02:00:00:00:02:00%s\n' "$(card_options)" >&"${monitors[2]}"
    sleep 1
}
# The port leaves the bridge for half a second.
event_leave() {
    ip link set a0 nomaster
    sleep 0.5
    ip link set a0 master "$bridge"
}
event_restart() {
    end_daemon TERM
    start_daemon
}
event_kill() {
    end_daemon KILL
    start_daemon
}
# Longer than the programs go on without a daemon.
event_silence() {
    end_daemon KILL
    sleep 8
    start_daemon
}
# Another file of the program, which loads its own BPF programs and puts them in the place of the old ones.
event_upgrade() {
    cp "$weir" "$work/weir.$identifier"
    end_daemon TERM
    weir=$work/weir.$identifier
    start_daemon
}
event_detach() { "$weir" switch detach "$bridge"; }
event_attach() { "$weir" switch attach "$bridge"; }
event_detach_all_without_daemon() {
    end_daemon KILL
    "$weir" switch detach --all
}

# measure EVENT [SECONDS]: a load, and the event in its middle.
measure() {
    local event=$1 during=${2:-$seconds} loaded
    say "VMs: offloads $offload, $mode: $event"
    ask 1 load "$during"
    loaded=$identifier
    sleep "$((during / 3))"
    "event_${event//-/_}" || say "the event failed: $event"
    answer 1 "$loaded" "$((during * 2 + 30))" | results_of "$event" >>"$results"
    [[ $mode == bridge ]] || daemon_is_there
}

# After an event that leaves none, or an unattached bridge.
daemon_is_there() {
    if ! kill -0 "$daemon" 2>/dev/null; then start_daemon; fi
    daemon_answers
}

results_of() {
    awk -v OFS='\t' -v start="$offload	$mode	$1" '$1 == "result" { print start, $2, $3, $4 }'
}

throughput() {
    ask 1 throughput 4
    answer 1 "$identifier" 60 | results_of throughput >>"$results"
}

measure_mode() {
    local event events=(none move move-back leave unplug plug)
    if [[ $mode == weir ]]; then
        start_daemon
        daemon_answers
        "$weir" switch attach "$bridge" || die "cannot attach: $(tail -n 5 "$work/daemon")"
        "$weir" switch status >&2 || true
    fi
    tell 1 ping -c 3 -i 0.2 10.9.0.2 >/dev/null
    tell 2 ping -c 3 -i 0.2 10.9.0.1 >/dev/null
    for event in "${events[@]}"; do measure "$event"; done
    throughput
    tell 2 active eth0 >/dev/null
    if [[ $mode == weir ]]; then
        for event in restart kill upgrade detach attach; do measure "$event"; done
        measure silence "$long_seconds"
        measure detach-all-without-daemon
        end_daemon TERM
        "$weir" switch detach --all >/dev/null 2>&1 || true
    fi
}

prepare
for offload in $offloads; do
    for name in a0 b0 b1; do tap "$name"; done
    start 1 a0
    start 2 b0 b1
    for number in 1 2; do wait_for "$number" '^vm: ready' 90; done
    for mode in $modes; do measure_mode; done
    for number in 1 2; do
        kill "${machines[$number]}"
        wait "${machines[$number]}" 2>/dev/null || true
        rm -f "$work"/{input,monitor}"$number"*
    done
    for name in a0 b0 b1; do ip link del "$name" 2>/dev/null || true; done
done
