#!/bin/sh
# Real faults in settings of the whole host: weir doctor finds, fixes and undoes each. One line
# each, see README.md.

# shellcheck disable=SC2317 # called through check

failed=0
export WEIR_STATE_DIR=/tmp/state

not_ok() {
    echo "not ok $1"
    echo "# $2"
    sed 's/^/# /' /tmp/log
    failed=1
}

# Writes the report as one line to /tmp/log.
report() {
    ./weir doctor --json 2>&1 | sed 's/^ *//; s/": /":/' | tr -d '\n' >/tmp/log
}

# Whether the doctor's report has a finding of this id.
found() {
    report
    sed 's/"unchecked":.*//' /tmp/log | grep -q "\"id\":\"$1\""
}

fix() { ./weir doctor --fix "$1" --yes >/tmp/log 2>&1; }

# broken ID FILE VALUE: with VALUE in FILE there is a finding, with an automatic fix and its undo.
broken() {
    healthy=$(cat "$2")
    echo "$3" >"$2"
    set="$(cat "$2")"
    if [ "$set" = "$healthy" ]; then
        echo "ok $1 # SKIP $2 cannot be set to $3 here"
    elif ! found "$1"; then
        not_ok "$1" "$2 = $3 is not found"
    elif ! fix "$1"; then
        not_ok "$1" "it is not fixed"
    elif [ "$(cat "$2")" = "$set" ]; then
        not_ok "$1" "the fix has changed nothing"
    elif ! fix "$1" || ! grep -q 'nothing to fix' /tmp/log; then
        not_ok "$1" "it is found after its fix"
    elif ! ./weir doctor --undo >/tmp/log 2>&1 || [ "$(cat "$2")" != "$set" ]; then
        not_ok "$1" "it is not undone"
    else
        echo "ok $1"
    fi
    echo "$healthy" >"$2"
}

# manual ID COMMAND: after the command there is a finding with a manual fix.
manual() {
    eval "$2" >/tmp/log 2>&1
    if ! found "$1"; then
        not_ok "$1" "it is not found after: $2"
    elif fix "$1" || ! grep -q 'manual fix' /tmp/log; then
        not_ok "$1" "there is no manual fix"
    else
        echo "ok $1"
    fi
}

# raised ID FILE VALUE: under load, VALUE in FILE is a finding; the fix raises it. Whether that is
# enough depends on the load.
raised() {
    healthy=$(cat "$2")
    echo "$3" >"$2"
    if ! found "$1"; then
        not_ok "$1" "$2 = $3 is not found"
    elif ! fix "$1" || [ "$(cat "$2")" -le "$3" ]; then
        not_ok "$1" "it is not raised"
    elif ! ./weir doctor --undo >/tmp/log 2>&1 || [ "$(cat "$2")" != "$3" ]; then
        not_ok "$1" "it is not undone"
    else
        echo "ok $1"
    fi
    echo "$healthy" >"$2"
}

# A broadcast multiplies in two loops of a bridge. RPS keeps it on the second CPU, so that this
# script has the first.
storm() {
    ip link add br0 type bridge && ip link add l0 type veth peer name l1 &&
        ip link add m0 type veth peer name m1 || return
    for port in l0 l1 m0 m1; do
        echo 2 >/sys/class/net/$port/queues/rx-0/rps_cpus && ip link set $port master br0 up || return
    done
    ip link set br0 up && ip addr add 198.18.0.1/24 dev br0 || return
    # No host answers.
    ping -c 1 -W 1 198.18.0.2
    true
}

# More neighbours than gc_thresh3 = 4 allows, none of which answers, until the file `scan` is gone.
scan() {
    ip link add s0 type veth peer name s1 && ip link set s0 up && ip link set s1 up &&
        ip addr add 198.18.1.1/24 dev s0 || return
    : >/tmp/scan
    while [ -e /tmp/scan ]; do
        for host in 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do
            ping -c 1 -W 1 "198.18.1.$host" &
        done
        wait
    done >/dev/null 2>&1 &
}

core=/proc/sys/net/core
clock=/sys/devices/system/clocksource/clocksource0/current_clocksource
thp=/sys/kernel/mm/transparent_hugepage/enabled
huge=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages

# A fresh guest has no fault, except perhaps its clock source.
report
if sed -e 's/"unchecked":.*//' -e 's/"id":"clocksource"//' /tmp/log | grep -q '"id":'; then
    not_ok no-false-alarm "a false alarm in a fresh guest"
else
    echo "ok no-false-alarm"
fi

broken bpf-jit $core/bpf_jit_enable 0
broken bpf-stats /proc/sys/kernel/bpf_stats_enabled 1
broken napi-budget $core/netdev_budget 64
broken netdev-backlog $core/netdev_max_backlog 10
broken busy-poll $core/busy_read 50

ip tuntap add dev t0 mode tap
default_qdisc=$(cat $core/default_qdisc)
echo pfifo_fast >$core/default_qdisc
broken default-qdisc $core/default_qdisc fq_codel
echo "$default_qdisc" >$core/default_qdisc
ip link del t0

ip link add v0 numrxqueues 2 type veth peer name v1
echo 4096 >/sys/class/net/v0/queues/rx-0/rps_flow_cnt
echo 32768 >$core/rps_sock_flow_entries
broken rps-flow-table $core/rps_sock_flow_entries 0
echo 0 >$core/rps_sock_flow_entries
ip link del v0

ip link add mgmt type vrf table 10
echo 1 >/proc/sys/net/ipv4/udp_l3mdev_accept
echo 1 >/proc/sys/net/ipv4/tcp_l3mdev_accept
broken l3mdev-accept /proc/sys/net/ipv4/tcp_l3mdev_accept 0
mkdir -p /etc
manual resolver-vrf 'echo nameserver 127.0.0.53 >/etc/resolv.conf'
rm /etc/resolv.conf
echo 0 >/proc/sys/net/ipv4/udp_l3mdev_accept
echo 0 >/proc/sys/net/ipv4/tcp_l3mdev_accept
ip link del mgmt

if storm >/tmp/log 2>&1; then
    raised softnet-dropped $core/netdev_max_backlog 1
    raised softnet-squeezed $core/netdev_budget 1
    manual ksoftirqd-time true
else
    not_ok softnet "there is no storm"
fi
for port in l0 m0 br0; do ip link del $port; done

if scan >/tmp/log 2>&1; then
    broken neighbour-table /proc/sys/net/ipv4/neigh/default/gc_thresh3 4
    rm /tmp/scan
else
    not_ok neighbour-table "there is no scan"
fi
wait
ip link del s0

if [ -e $thp ]; then
    thp_before=$(sed 's/.*\[\(.*\)\].*/\1/' $thp)
    echo never >$thp
    echo 4 >$huge
    broken huge-pages $huge 0
    echo 0 >$huge
    echo "$thp_before" >$thp
else
    echo "ok huge-pages # SKIP this kernel has no transparent huge pages"
fi

clock_before=$(cat $clock)
if [ "$(wc -w <${clock%current*}available_clocksource)" = 1 ]; then
    echo "ok clocksource # SKIP the machine has $clock_before alone"
elif grep -q tsc ${clock%current*}available_clocksource && grep -q tsc $clock; then
    broken clocksource $clock hpet
else
    manual clocksource "echo hpet >$clock || echo acpi_pm >$clock"
fi
echo "$clock_before" >$clock

exit "$failed"
