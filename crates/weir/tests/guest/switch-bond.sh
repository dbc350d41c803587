#!/bin/sh
# `weir switch` with a bond as a port. Its legs lead to the namespace sw, which stands for the switch at the other end.

# shellcheck disable=SC2317 # called through each_mode

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

peers_up() {
    for leg in 0 1; do ip -n sw link set "s$leg" up; done
    sleep 0.5 # more than miimon
    hosts="$hosts sw/s0 sw/s1"
}

# Before a check: an arrival at either leg.
# shellcheck disable=SC2034 # read by the lab
by_either() {
    together=--together
    "$@"
    together=""
}

balance_xor() {
    host 1
    host 2
    bond mode balance-xor xmit_hash_policy layer2 || return
    peers_up
    attach
    learn h1:1-b h2:2-b sw/s0:8-b sw/s1:9-b

    fast xor-in h1:1-2 sw/s0:8-1 sw/s1:9-1 sw/s1:8-2 = "h2 1-2" "h1 8-1" "h1 9-1" "h2 8-2"
    by_either fast xor-out h1:1-8x10 h2:2-8x10 h1:1-9x10 = "sw 1-8x10" "sw 2-8x10" "sw 1-9x10"
    by_either expect xor-broadcast h1:1-b = "h2 1-b" "sw 1-b"
    expect xor-no-return sw/s0:8-9 =

    change ip -n sw link set s0 down
    sleep 0.5
    hosts=" h1 h2 sw/s1"
    expect xor-one-leg h1:1-8x10 h2:2-9x10 = "sw/s1 1-8x10" "sw/s1 2-9x10"
    change ip -n sw link set s0 up
    sleep 0.5
    hosts=" h1 h2 sw/s0 sw/s1"
    by_either expect xor-both-again h1:1-8x10 h2:2-8x10 = "sw 1-8x10" "sw 2-8x10"
    change ip link set l1 nomaster
    expect xor-leg-removed h1:1-8x10 = "sw/s0 1-8x10"
    change ip link set l1 down
    change ip link set l1 master bond0
    sleep 0.5
    by_either expect xor-leg-added h1:1-8x10 = "sw 1-8x10"
}

active_backup() {
    host 1
    bond mode active-backup || return
    peers_up
    change ip link set bond0 type bond active_slave l0
    attach
    learn h1:1-b sw/s0:8-b

    fast backup-active h1:1-8 sw/s0:8-1 = "sw/s0 1-8" "h1 8-1"
    expect backup-inactive-in sw/s1:8-1 =
    change ip link set bond0 type bond active_slave l1
    fast backup-changed h1:1-8 sw/s1:8-1 = "sw/s1 1-8" "h1 8-1"
    expect backup-changed-in sw/s0:8-1 =
    change ip -n sw link set s1 down
    sleep 0.5
    hosts=" h1 sw/s0"
    expect backup-failed h1:1-8 sw/s0:8-1 = "sw/s0 1-8" "h1 8-1"
}

each_mode balance_xor
each_mode active_backup
finish
