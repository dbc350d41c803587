#!/bin/sh
# `weir switch` with a tap as a port whose other end is vhost-net: a virtual machine's network card without the
# machine. DPDK's virtio-user is the driver in it, and testpmd answers ARP and ICMP.

# shellcheck disable=SC2317,SC2154 # called through each_mode; variables of the lab

dpdk=/opt/dpdk
if [ ! -e $dpdk ]; then
    echo "ok vhost # SKIP no DPDK here: ./run switch guests"
    exit 0
fi

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

# machine NAME NUMBER: the tap NAME, a port, and behind it the address 02:00:00:00:00:NUMBER.
machine() {
    ip tuntap add dev "$1" mode tap
    ip link set "$1" master br0 up
    sleep 3600 | "$dpdk/lib/ld-linux-x86-64.so.2" --library-path $dpdk/lib $dpdk/bin/dpdk-testpmd \
        -l 0-1 --no-huge -m 128 --no-pci --no-telemetry --iova-mode=va --file-prefix "$1" \
        -d $dpdk/lib/librte_mempool_ring.so -d $dpdk/lib/librte_net_virtio.so \
        --vdev="net_virtio_user0,mac=02:00:00:00:00:$2,path=/dev/vhost-net,queues=1,queue_size=256,iface=$1" -- \
        --forward-mode=icmpecho --no-mlockall --total-num-mbufs=2048 --auto-start >/tmp/machine 2>&1 &
    for _ in $(seq 60); do
        [ "$(cat "/sys/class/net/$1/carrier" 2>/dev/null)" != 1 ] || break
        sleep 0.5
    done
    # It gives its own address to the tap, and the bridge would take the frames to it as its own.
    sleep 2
    ip link set "$1" address "02:00:00:00:01:$2"
    ports="$ports $1"
}

end_machine() {
    for process in $(ps | awk '/dpdk-testpm[d]/ { print $1 }'); do kill "$process"; done
    for process in $(ps | awk '/sleep 360[0]/ { print $1 }'); do kill "$process"; done
    sleep 1
}

# pings ID SIZE: all must be answered; those after the first without the bridge, where each port has a hook.
pings() {
    forwards
    before=$hits
    if ip netns exec h1 ping -q -c 50 -i 0.05 -s "$2" -W 3 10.9.0.9 >/tmp/ping 2>&1 && grep -q ' 0% packet loss' /tmp/ping; then
        passed "$1"
    else
        fail "$1" "$(cat /tmp/ping /tmp/machine)"
    fi
    was_fast "$1" "$before"
}

vhost() {
    host 1
    machine vt0 09
    attach
    ip -n h1 neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev eth0
    # It answers some seconds after its card has a link.
    for _ in $(seq 20); do
        ! ip netns exec h1 ping -q -c 1 -W 1 10.9.0.9 >/dev/null || break
    done
    settle
    pings vhost 56
    pings vhost-longest 1472
    end_machine
}

modprobe -a tun vhost_net
# DPDK wants its plugins where nobody else may write.
chmod go-w / /opt $dpdk $dpdk/lib
each_mode vhost
finish
