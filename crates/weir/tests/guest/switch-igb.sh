#!/bin/sh
# `weir switch` with Intel's igb as a port of a bridge that filters VLANs: its VLAN offload is off while it is
# accelerated, and the link comes back after resets. The card's other end is the card of the namespace tx.

# shellcheck disable=SC2317 # called through each_mode

if [ ! -e settings ] || ! grep -q '^modules=.*igb' settings; then
    echo "ok igb # SKIP no such card here: ./run switch guests"
    exit 0
fi

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

card_is_there() {
    [ ! -e /tmp/card ] || return 0
    # The driver, and the cards in namespaces of their own.
    # shellcheck disable=SC1091 # beside it in the guest
    . ./card-lab
    : >/tmp/card
}

offload() { ethtool -k "$1" | awk '$1 == "rx-vlan-offload:" { print $2 }'; }

# igb takes its link down for a second or two when a program comes or goes, and at each reset.
link_is_up() {
    for try in $(seq 40); do
        if [ "$(cat /sys/class/net/rx0/carrier 2>/dev/null)" = 1 ] && bridge link show dev rx0 | grep -q forwarding; then
            sleep 1
            return 0
        fi
        sleep 0.5
    done
    fail link "no link after $try tries: $(ip link show rx0)"
}

uplink() {
    ip link set br0 type bridge vlan_filtering 1 vlan_default_pvid 0
    host 1
    host 2
    bridge vlan add dev p1 vid 10 pvid untagged
    bridge vlan add dev p2 vid 20 pvid untagged
    ip -n rx link set rx0 netns 1
    ip link set rx0 master br0 up
    bridge vlan add dev rx0 vid 10
    bridge vlan add dev rx0 vid 20
    ports="$ports rx0" hosts="$hosts tx/tx0"
    link_is_up
    offload_before=$(offload rx0)
    attach
    link_is_up
    # shellcheck disable=SC2154 # of the lab
    case $mode-$(offload rx0) in
    xdp-off) passed offload-off ;;
    xdp-*) fail offload-off "$(ethtool -k rx0 | grep vlan)" ;;
    esac
    learn h1:1-b h2:2-b tx/tx0:8-b@10 tx/tx0:9-b@20
    fast uplink-push h1:1-8 h2:2-9 = "tx/tx0 1-8@10" "tx/tx0 2-9@20"
    fast uplink-pop tx/tx0:8-1@10 tx/tx0:9-2@20 = "h1 8-1" "h2 9-2"
    fast uplink-burst h1:1-8x50 tx/tx0:8-1@10x50 = "tx/tx0 1-8@10x50" "h1 8-1x50"
    fast uplink-longest h1:1-8+1514 tx/tx0:8-1@10+1514 = "h1 8-1+1514" "tx/tx0 1-8@10+1514"
    expect uplink-other-vlan tx/tx0:8-2@10 = "h1 8-2"

    ip link set rx0 down
    sleep 0.3
    ip link set rx0 up
    link_is_up
    learn tx/tx0:8-b@10
    fast after-down h1:1-8 tx/tx0:8-1@10 = "h1 8-1" "tx/tx0 1-8@10"
    ethtool -G rx0 rx 512 tx 512
    link_is_up
    learn tx/tx0:8-b@10
    fast after-rings h1:1-8 tx/tx0:8-1@10 = "h1 8-1" "tx/tx0 1-8@10"
    ethtool -G rx0 rx 256 tx 256
    link_is_up
    ethtool -L rx0 combined 1 && link_is_up
    learn tx/tx0:8-b@10
    fast after-queues h1:1-8 tx/tx0:8-1@10 = "h1 8-1" "tx/tx0 1-8@10"
    ethtool -L rx0 combined 2 && link_is_up

    detach
    link_is_up
    if [ "$(offload rx0)" = "$offload_before" ]; then passed offload-restored; else fail offload-restored "$offload_before before, $(offload rx0) after; $(cat /tmp/detach /tmp/daemon)"; fi
    expect detached-traffic h1:1-8 tx/tx0:8-1@10 = "h1 8-1" "tx/tx0 1-8@10"
    # The card is no link to delete.
    ip link set rx0 nomaster
    ip link set rx0 netns rx
    ip -n rx link set rx0 promisc on up
    ports=" p1 p2" hosts=" h1 h2"
}

# The driver refuses XDP with this MTU, and then takes no frames that are redirected by XDP either.
fallback() {
    [ "$mode" = xdp ] || return 0
    host 1
    ip -n rx link set rx0 netns 1
    ip link set rx0 mtu 9000
    ip link set rx0 master br0 up
    link_is_up
    # Without it among the ports, its hook is that of auto.
    attach
    link_is_up
    hosts="$hosts tx/tx0"
    if ./weir switch status br0 | grep -q '^ *rx0 *tcx'; then passed fallback; else fail fallback "$(./weir switch status br0)"; fi
    learn h1:1-b tx/tx0:8-b
    expect fallback-traffic h1:1-8x20 tx/tx0:8-1x20 = "h1 8-1x20" "tx/tx0 1-8x20"
    if [ "$(offload rx0)" = "$offload_before" ]; then passed fallback-offload; else fail fallback-offload "$(offload rx0)"; fi
    detach
    ip link set rx0 nomaster
    ip link set rx0 mtu 1500
    ip link set rx0 netns rx
    ip -n rx link set rx0 promisc on up
    hosts=" h1"
}

card_is_there
each_mode uplink
each_mode fallback
finish
