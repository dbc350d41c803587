#!/bin/sh
# Real faults of devices that only the guest has: bonds, VLANs, teams, fq_codel. Each function injects
# one fault in a network namespace of its own, and is named after the check that must find it. One
# line each, see README.md.

# shellcheck disable=SC2317 # called through try

failed=0

# try ID: runs the function of that name, with `_` for `-`, in a namespace of its own.
try() {
    id=$1
    ip netns add broken
    if "$(echo "$id" | tr - _)" >/tmp/log 2>&1; then
        echo "ok $id"
    else
        echo "not ok $id"
        sed 's/^/# /' /tmp/log
        failed=1
    fi
    ip netns del broken
    rm -rf "$WEIR_STATE_DIR"
}

export WEIR_STATE_DIR=/tmp/state

in_ns() { ip netns exec broken "$@"; }

# Every line of the input is a command's arguments: of ip in the namespace.
links() {
    while read -r words; do
        # shellcheck disable=SC2086 # words
        ip -n broken $words || return
    done
}

# finds ID SUBJECT [OPTIONS]: whether weir doctor has that finding.
finds() {
    check=$1 subject=$2
    shift 2
    # As one line.
    in_ns ./weir doctor --json "$@" | sed 's/^ *//; s/": /":/' | tr -d '\n' >/tmp/report
    grep -o "\"id\":\"$check\",\"severity\":\"[a-z]*\",\"title\":\"[^\"]*\",\"subject\":\"$subject\"" /tmp/report
}

must_find() {
    finds "$@" && return
    echo "no finding of $1 on $2:"
    cat /tmp/report
    return 1
}

must_not_find() {
    finds "$@" || return 0
    echo "a false finding of $1 on $2"
    return 1
}

root_qdisc() { in_ns tc qdisc show dev "$1" root; }

spread() { in_ns sh -c 'echo 3 >/sys/class/net/v0/queues/rx-0/rps_cpus'; }

# A bridge with a veth and a tap; packets of the veth go to both CPUs.
guests() {
    links <<'END' && spread
link add br0 type bridge
link add v0 type veth peer name v1
tuntap add tap0 mode tap
link set v0 master br0
link set tap0 master br0
link set v0 up
link set v1 up
link set tap0 up
link set br0 up
END
}

# fixes ID SUBJECT: the fix sets noqueue on SUBJECT, the undo restores its qdisc exactly.
fixes() {
    before=$(root_qdisc "$2") || return
    in_ns ./weir doctor --fix "$1" --yes || return
    root_qdisc "$2" | grep '^qdisc noqueue' || return
    must_not_find "$1" "$2" || return
    in_ns ./weir doctor --undo || return
    after=$(root_qdisc "$2") || return
    echo "before $before; after $after"
    [ "$before" = "$after" ]
}

# With custom settings.
rps_lock_qdisc() {
    guests && must_not_find rps-lock-qdisc tap0 || return
    in_ns tc qdisc replace dev tap0 root fq_codel limit 500 flows 64 target 7ms noecn || return
    must_find rps-lock-qdisc tap0 && fixes rps-lock-qdisc tap0
}

# As the default of the kernel.
rps_lock_qdisc_default() {
    sysctl -q -w net.core.default_qdisc=fq_codel && guests
    sysctl -q -w net.core.default_qdisc=pfifo_fast
    root_qdisc tap0 | grep '^qdisc fq_codel 0:' || return
    must_find rps-lock-qdisc tap0 || return
    sysctl -q -w net.core.default_qdisc=fq_codel
    fixes rps-lock-qdisc tap0
    result=$?
    sysctl -q -w net.core.default_qdisc=pfifo_fast
    return "$result"
}

# The settings of fq cannot be restored: the fix is manual.
rps_lock_qdisc_unknown() {
    guests && in_ns tc qdisc replace dev tap0 root fq && must_find rps-lock-qdisc tap0 || return
    ! in_ns ./weir doctor --fix rps-lock-qdisc --yes || return
    root_qdisc tap0 | grep '^qdisc fq '
}

# Through a leg of a bond and a VLAN on the bond to a bridge.
rps_lock_qdisc_bond_vlan() {
    links <<'END' || return
link add bond0 type bond mode active-backup
link add v0 type veth peer name v1
link set v0 master bond0
link set v0 up
link set v1 up
link set bond0 up
link add bond0.5 link bond0 type vlan id 5
link add br0 type bridge
tuntap add tap0 mode tap
link set bond0.5 master br0
link set tap0 master br0
link set bond0.5 up
link set tap0 up
link set br0 up
END
    spread && in_ns tc qdisc replace dev tap0 root fq_codel && must_find rps-lock-qdisc tap0
}

# attach DEVICE MODE: a program that drops, in generic or native mode.
attach() { ip -n broken link set dev "$1" "$2" object /drop.bpf.o section xdp; }

# upper NAME: a device without native XDP is a finding with a generic program, and with --dev.
upper() {
    must_not_find xdp-upper-device "$1" && must_find xdp-upper-device "$1" --dev "$1" &&
        attach "$1" xdpgeneric && must_find xdp-upper-device "$1" && must_find xdp-generic "$1"
}

xdp_upper_device_vlan() {
    links <<'END' && upper v0.7 && grep -o '"value":"v0"' /tmp/report
link add v0 type veth peer name v1
link add v0.7 link v0 type vlan id 7
END
}

xdp_upper_device_team() {
    links <<'END' && upper team0
link add team0 type team
END
}

# A bond runs a native program on its legs.
xdp_upper_device_bond() {
    links <<'END' || return
link add bond0 type bond mode active-backup
link add v0 type veth peer name v1
link set v0 master bond0
END
    upper bond0 && grep -o '"value":"v0"' /tmp/report || return
    ip -n broken link set dev bond0 xdpgeneric off && attach bond0 xdpdrv || return
    must_not_find xdp-upper-device bond0 && must_not_find xdp-generic bond0
}

# The network card of the guest, a vmxnet3, has LRO and VLAN offload. It is in the first namespace.
card() {
    ip link set eth0 netns broken || return
    switches "$1" "$2"
    result=$?
    ip -n broken link set eth0 netns 1
    return "$result"
}

# switches ID LINE: LINE of `ethtool -k` is on, which is found, fixed and undone.
switches() {
    must_not_find "$1" eth0 && must_find "$1" eth0 --dev eth0 || return
    in_ns ./weir doctor --dev eth0 --fix "$1" --yes || return
    in_ns ethtool -k eth0 | grep "^$2: off" && must_not_find "$1" eth0 --dev eth0 || return
    in_ns ./weir doctor --undo && in_ns ethtool -k eth0 | grep "^$2: on"
}

lro() { card lro large-receive-offload; }

vlan_offload() { card vlan-offload rx-vlan-offload; }

# Debian's default is fq_codel.
default_qdisc=$(sysctl -n net.core.default_qdisc)
sysctl -q -w net.core.default_qdisc=pfifo_fast

try rps-lock-qdisc
try rps-lock-qdisc-default
try rps-lock-qdisc-unknown
try rps-lock-qdisc-bond-vlan
try xdp-upper-device-vlan
try xdp-upper-device-team
try xdp-upper-device-bond
modprobe vmxnet3
try lro
try vlan-offload

# Restored for the next script.
modprobe -r vmxnet3
sysctl -q -w net.core.default_qdisc="$default_qdisc"

exit "$failed"
