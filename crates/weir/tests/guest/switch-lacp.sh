#!/bin/sh
# `weir switch` with a bond of 802.3ad as a port, whose partner is a bond in the namespace sw.

# shellcheck disable=SC2317 # called through each_mode

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

lacp() {
    host 1
    bond mode 802.3ad lacp_rate fast || return
    ip -n sw link add bond0 type bond mode 802.3ad lacp_rate fast miimon 50
    for leg in 0 1; do
        ip -n sw link set "s$leg" master bond0
        ip -n sw link set "s$leg" up
    done
    ip -n sw link set bond0 up
    for try in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(grep -c 'port state: 63' /proc/net/bonding/bond0)" != 4 ] || break
        sleep 1
    done
    hosts="$hosts sw/bond0"
    attach
    learn h1:1-b sw/bond0:8-b
    fast lacp h1:1-8x10 sw/bond0:8-1x10 = "sw/bond0 1-8x10" "h1 8-1x10"
    # Its own frames still come through, for longer than it waits for them.
    sleep 4
    if [ "$(grep -c 'port state: 63' /proc/net/bonding/bond0)" = 4 ]; then
        passed lacp-stays
    else
        fail lacp-stays "after $try s: $(cat /proc/net/bonding/bond0)"
    fi
    expect lacp-later h1:1-8x10 sw/bond0:8-1x10 = "sw/bond0 1-8x10" "h1 8-1x10"
}

each_mode lacp
finish
