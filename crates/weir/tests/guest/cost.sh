#!/bin/sh
# `weir cost` on a machine that it cannot measure well: a clock that is read slowly, a CPU
# that goes offline meanwhile. The rest must be measured all the same. One line each, as README.md says.

failed=0

# check ID TEXT: the report of /tmp/log, which weir ended well with, says this.
check() {
    if [ "$status" = 0 ] && tr -s ' \n' ' ' </tmp/log | grep -q "$2"; then
        echo "ok $1"
    else
        echo "not ok $1"
        echo "# weir ended with $status"
        sed 's/^/# /' /tmp/log
        failed=1
    fi
}

cost() {
    ./weir cost "$@" >/tmp/log 2>&1
    status=$?
}

cost --seconds 1
check whole-ledger 'sum 100.0'

clocks=/sys/devices/system/clocksource/clocksource0
clock=$(cat $clocks/current_clocksource)
slow=$(tr ' ' '\n' <$clocks/available_clocksource | grep -m 1 -E '^(hpet|acpi_pm)$')
if [ -n "$slow" ]; then
    echo "$slow" >$clocks/current_clocksource
    cost --seconds 1
    check slow-clock "the clock source is $slow"
    echo "$clock" >$clocks/current_clocksource
else
    echo "ok slow-clock # SKIP no clock source is slow here: $(cat $clocks/available_clocksource)"
fi

online=/sys/devices/system/cpu/cpu1/online
{
    sleep 2
    echo 0 >$online
} &
cost --seconds 6
wait
check cpu-goes-offline 'CPU 1: the CPU went offline after'
check other-cpu-is-measured 'CPU 0: network'
echo 1 >$online

exit "$failed"
