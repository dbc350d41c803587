#!/bin/sh
# `weir switch` and the settings of ports: isolation, locks, hairpin, learning, MTU, states.

# shellcheck disable=SC2317,SC2154 # called through each_mode; variables of the lab

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

port() { change bridge link set dev "$@"; }

settings() {
    for number in 1 2 3 4; do host "$number"; done
    attach
    learn h1:1-b h2:2-b h3:3-b h4:4-b
    fast unicast h1:1-2 = "h2 1-2"
    expect tagged-unaware h1:1-2@5 = "h2 1-2@5"
    expect unknown h1:1-9 = "h2 1-9" "h3 1-9" "h4 1-9"
    expect broadcast h1:1-b = "h2 1-b" "h3 1-b" "h4 1-b"
    expect link-local h1:1-l =

    change bridge link set dev p1 isolated on
    port p2 isolated on
    expect isolated h1:1-2 h2:2-1 =
    fast isolated-to-other h1:1-3 h3:3-2 = "h3 1-3" "h2 3-2"
    expect isolated-broadcast h1:1-b = "h3 1-b" "h4 1-b"
    change bridge link set dev p2 isolated off
    fast isolated-one h1:1-2 = "h2 1-2"
    port p1 isolated off

    # A locked port forwards for addresses in its table only, and does not learn.
    port p1 locked on
    expect locked-unknown h1:9-2 =
    fast locked-known h1:1-2 = "h2 1-2"
    change bridge fdb del 02:00:00:00:00:01 dev p1 master
    expect locked-forgotten h1:1-2 =
    change bridge fdb add 02:00:00:00:00:01 dev p1 master static
    fast locked-static h1:1-2 = "h2 1-2"
    fast to-locked h2:2-1 = "h1 2-1"
    # The table's other port is no right to use this one.
    expect locked-of-other h1:3-2 =
    port p1 locked off
    change bridge fdb del 02:00:00:00:00:01 dev p1 master
    learn h1:1-b

    learn h1:8-b
    expect no-hairpin h1:1-8 =
    port p1 hairpin on
    expect hairpin h1:1-8 = "h1 1-8"
    port p1 hairpin off
    expect hairpin-off h1:1-8 =

    port p1 learning off
    change ip link set p1 type bridge_slave fdb_flush
    expect no-learning h1:1-2 = "h2 1-2"
    port p1 learning on
    learn h1:1-b

    # To a port with a smaller MTU: its header and a tag are not part of it.
    change ip link set p2 mtu 1000
    fast mtu-fits h1:1-2+1014 = "h2 1-2+1014"
    expect mtu-room-of-a-tag h1:1-2+1018 = "h2 1-2+1018"
    expect mtu-too-long h1:1-2+1019 =
    change ip link set p2 mtu 1500
    fast mtu-restored h1:1-2+1514 = "h2 1-2+1514"

    # Disabled, listening and learning: no frame in or out. Blocking, without STP, is forwarding at once.
    for state in 0 1 2; do
        port p2 state "$state"
        expect "state-$state" h1:1-2 h2:2-1 =
    done
    port p2 state 4
    learn h2:2-b
    expect state-blocking h1:1-2 h2:2-1 = "h2 1-2" "h1 2-1"
    port p2 state 3
    learn h2:2-b
    fast state-forwarding h1:1-2 h2:2-1 = "h2 1-2" "h1 2-1"

    # Filters of others, also in a qdisc that this switch has made; each second it looks for them.
    tc qdisc add dev p1 clsact 2>/dev/null
    tc filter add dev p1 ingress pref 60000 matchall action drop
    [ "$mode" = bridge ] || sleep 2
    expect filter-of-others h1:1-2 h2:2-1 = "h1 2-1"
    detach
    expect filter-stays h1:1-2 h2:2-1 = "h1 2-1"
    tc qdisc del dev p1 clsact
}

each_mode settings
finish
