#!/bin/sh
# `weir switch` on bridges of 802.1ad, whose VLANs are those of service tags.

# shellcheck disable=SC2317 # called through each_mode

# shellcheck disable=SC1091 # beside it in the guest
. ./switch-lab

service_tags() {
    filtering 802.1ad
    for number in 1 2 3 4; do host "$number"; done
    vlan p1 10 pvid untagged
    vlan p2 10 pvid untagged
    vlan p3 10
    vlan p3 20
    vlan p4 10
    attach
    learn h1:1-b h2:2-b h3:3-b@s10 h4:4-b@s10

    fast service-access h1:1-2 = "h2 1-2"
    fast service-push h1:1-3 = "h3 1-3@s10"
    fast service-pop h3:3-1@s10 = "h1 3-1"
    fast service-pass h3:3-4@s10.2 = "h4 3-4@s10.2"
    expect customer-access h1:1-2@7 = "h2 1-2@7"
    expect customer-push h1:1-3@7 = "h3 1-3@s10@7"
    expect customer-pop h3:3-1@s10@7 = "h1 3-1@7"
    expect customer-pass h3:3-4@s10@7.5 = "h4 3-4@s10@7.5"
    expect customer-no-pvid h3:3-1@10 =
    expect service-not-a-member h4:4-3@s20 =
    fast service-longest h1:1-3+1514 = "h3 1-3@s10+1514"
}

each_mode service_tags
finish
