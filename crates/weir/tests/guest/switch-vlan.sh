#!/bin/sh
# `weir switch` on bridges that filter VLANs: access, trunk and mixed ports of 802.1Q.

# shellcheck disable=SC2317 # called through each_mode

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

customer_tags() {
    filtering 802.1Q
    for number in 1 2 3 4 5 6; do host "$number"; done
    vlan p1 10 pvid untagged
    vlan p2 10 pvid untagged
    vlan p3 20 pvid untagged
    vlan p4 10
    vlan p4 20
    vlan p5 10 pvid untagged
    vlan p5 20
    vlan p6 20 pvid
    attach
    learn h1:1-b h2:2-b h3:3-b h4:4-b@10 h4:4-b@20 h5:5-b h5:5-b@20 h6:6-b

    fast access h1:1-2 = "h2 1-2"
    fast push h1:1-4 = "h4 1-4@10"
    fast pop h4:4-1@10 = "h1 4-1"
    fast pass h4:4-5@20 = "h5 4-5@20"
    fast pop-at-pvid h4:4-5@10 = "h5 4-5"
    fast pvid-out-tagged h3:3-6 = "h6 3-6@20"
    fast pvid-in h6:6-3 = "h3 6-3"
    fast tagged-at-access h1:1-2@10 = "h2 1-2"
    fast priority-kept h4:4-5@20.5 = "h5 4-5@20.5"
    expect priority-tag h1:1-2@0.3 = "h2 1-2"
    expect priority-tag-pushed h1:1-4@0.3 = "h4 1-4@10.3"
    fast longest h1:1-2+1514 = "h2 1-2+1514"
    fast longest-pushed h1:1-4+1514 = "h4 1-4@10+1514"
    fast longest-popped h4:4-1@10+1514 = "h1 4-1+1514"
    fast burst h1:1-4x100 h4:4-1@10x100 = "h4 1-4@10x100" "h1 4-1x100"

    expect other-vlan h1:1-3 = "h2 1-3" "h4 1-3@10" "h5 1-3"
    expect not-a-member h1:1-2@20 h3:3-4@10 h4:4-1@30 =
    expect no-pvid h4:4-1 =
    expect broadcast h1:1-b = "h2 1-b" "h4 1-b@10" "h5 1-b"
    expect multicast h3:3-m = "h4 3-m@20" "h5 3-m@20" "h6 3-m@20"
    expect link-local h1:1-l =
    expect second-tag h4:4-1@10@30 = "h1 4-1@30"
    expect service-tag h1:1-2@s10 = "h2 1-2@s10"

    # An address moves in one of its VLANs.
    expect moved-first h2:4-b = "h1 4-b" "h4 4-b@10" "h5 4-b"
    expect moved h1:1-4 = "h2 1-4"
    settle
    fast moved-active h1:1-4 = "h2 1-4"
    fast not-moved h3:3-4 = "h4 3-4@20"
    learn h4:4-b@10

    # A VLAN has a state of its own on a port.
    change bridge vlan set dev p4 vid 10 state blocking
    expect vlan-blocked h1:1-4 h4:4-1@10 =
    fast vlan-blocked-elsewhere h3:3-4 = "h4 3-4@20"
    change bridge vlan set dev p4 vid 10 state forwarding
    learn h4:4-b@10
    fast vlan-forwarding h1:1-4 = "h4 1-4@10"

    change bridge vlan del dev p4 vid 10
    expect vlan-removed h1:1-4 = "h2 1-4" "h5 1-4"
    expect vlan-removed-in h4:4-1@10 =
    fast vlan-left h3:3-4 = "h4 3-4@20"
    change vlan p4 10 untagged
    learn h4:4-b@10
    fast untagged-out h1:1-4 = "h4 1-4"

    change ip link set br0 type bridge vlan_filtering 0
    learn h1:1-b h3:3-b
    expect unaware h1:1-3 = "h3 1-3"
    expect unaware-tagged h1:1-3@77 = "h3 1-3@77"
    # A VLAN device takes its frames before the bridge.
    ip link add link p1 name p1.77 type vlan id 77 && ip link set p1.77 up
    expect unaware-vlan-device h1:1-3@77 =
    ip link del p1.77
    expect unaware-tagged-again h1:1-3@77 = "h3 1-3@77"
}

each_mode customer_tags
finish
