#!/bin/sh
# The base of the other scripts: each kind of device and qdisc can be made in this guest, the
# module coming by itself, and weir runs. One line each, as README.md says.

# shellcheck disable=SC2317 # called through check

failed=0

# check ID COMMAND…
check() {
    id=$1
    shift
    if "$@" >/tmp/log 2>&1; then
        echo "ok $id"
    else
        echo "not ok $id"
        sed 's/^/# /' /tmp/log
        failed=1
    fi
}

link_can_be_made() {
    name=$1
    shift
    ip link add "$name" "$@" && ip link del "$name"
}

tap_can_be_made() { ip tuntap add dev t0 mode tap && ip link del t0; }

qdisc_can_be_set() { tc qdisc replace dev d0 root "$@" && tc qdisc show dev d0 | grep "qdisc $1 "; }

namespace_works() {
    ip netns add a && ip netns exec a ip link set lo up && ip netns del a
}

# Native XDP on a veth, as in the lab.
xdp_works() {
    ip link add v0 type veth peer name v1 &&
        ip link set v0 xdpdrv object /drop.bpf.o section xdp &&
        ip link show v0 | grep -q 'prog/xdp' &&
        ip link del v0
}

ip link add d0 type dummy
check veth link_can_be_made v0 type veth peer name v1
check bridge link_can_be_made b0 type bridge
check bond link_can_be_made b0 type bond
check team link_can_be_made t0 type team
check dummy link_can_be_made d1 type dummy
check vrf link_can_be_made r0 type vrf table 10
check vlan link_can_be_made d0.5 link d0 type vlan id 5
check macvlan link_can_be_made m0 link d0 type macvlan
check tap tap_can_be_made
check openvswitch modprobe openvswitch
check fq_codel qdisc_can_be_set fq_codel
check fq qdisc_can_be_set fq
check tbf qdisc_can_be_set tbf rate 1gbit burst 32k latency 50ms
check noqueue qdisc_can_be_set noqueue
check namespace namespace_works
check xdp xdp_works
check ethtool ethtool -k lo
check weir ./weir --version
ip link del d0

exit "$failed"
