#!/bin/sh
# `weir switch` and events: ports that go down, leave and come, addresses that move; and streams of TCP.

# shellcheck disable=SC2317 # called through each_mode

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

events() {
    for number in 1 2 3 4; do host "$number"; done
    attach
    learn h1:1-b h2:2-b h3:3-b h4:4-b
    change ip link set p2 down
    expect down h1:1-2 h2:2-1 = "h3 1-2" "h4 1-2"
    change ip link set p2 up
    learn h2:2-b
    fast up-again h1:1-2 h2:2-1 = "h2 1-2" "h1 2-1"

    # The first frame from the new port moves the address.
    expect moved-first h3:2-1 = "h1 2-1"
    expect moved h1:1-2x20 = "h3 1-2x20"
    settle
    fast moved-active h1:1-2x20 = "h3 1-2x20"
    expect moved-back-first h2:2-1 = "h1 2-1"
    expect moved-back h1:1-2x20 = "h2 1-2x20"
    settle

    change bridge fdb add 02:00:00:00:00:07 dev p4 master static
    fast static h1:1-7 = "h4 1-7"
    change bridge fdb replace 02:00:00:00:00:07 dev p3 master static
    fast static-moved h1:1-7 = "h3 1-7"
    change bridge fdb del 02:00:00:00:00:07 dev p3 master
    expect static-gone h1:1-7 = "h2 1-7" "h3 1-7" "h4 1-7"

    change ip link set p2 nomaster
    expect left h1:1-2 = "h3 1-2" "h4 1-2"
    expect left-in h2:2-1 =
    change ip link set p2 master br0
    learn h2:2-b
    expect joined h1:1-2 h2:2-1 = "h2 1-2" "h1 2-1"
    change ip link del p4
    # shellcheck disable=SC2034 # read by the lab
    hosts=" h1 h2 h3" ports=" p1 p2 p3"
    expect deleted h1:1-4 = "h2 1-4" "h3 1-4"
    ip netns del h4
    host 4
    learn h4:4-b
    expect added h1:1-4 h4:4-1 = "h4 1-4" "h1 4-1"

    streams
    change ip link set br0 down
    expect bridge-down h1:1-2 =
    change ip link set br0 up
}

# A megabyte each way through the stack, whose checksums and segments may be left to the card.
streams() {
    ip address add 10.9.0.100/24 dev br0
    if ip netns exec h1 ping -c 3 -i 0.2 -W 2 10.9.0.100 >/tmp/ping 2>&1; then passed ping-bridge; else fail ping-bridge "$(cat /tmp/ping)"; fi
    ip address del 10.9.0.100/24 dev br0
    mkdir -p /tmp/www && dd if=/dev/urandom of=/tmp/www/sent bs=64k count=16 2>/dev/null
    stream 1 2
    stream 2 1
}

# stream FROM TO
stream() {
    ip netns exec "h$1" httpd -f -p 80 -h /tmp/www &
    server=$!
    sleep 0.3
    ip netns exec "h$2" timeout 20 wget -q -O /tmp/received "http://10.9.0.$1/sent" >/tmp/wget 2>&1
    kill "$server"
    if cmp /tmp/www/sent /tmp/received >>/tmp/wget 2>&1; then passed "stream-$1-$2"; else fail "stream-$1-$2" "$(cat /tmp/wget)"; fi
}

each_mode events
finish
