//! pfctl's canonical text for each part of the language.

use pf_filter::print;

use super::{findings, read};

#[test]
fn each_configuration_is_printed_as_pfctl_does() {
    for (name, text, wanted) in CASES {
        let parsed = read(text);
        let errors: Vec<_> = parsed
            .diagnostics
            .iter()
            .map(|found| &found.message)
            .collect();
        assert!(
            !parsed.has_errors(),
            "{name}: {:?} {errors:?}",
            findings(&parsed)
        );
        let got = print::canonical(&parsed.ruleset);
        assert!(got == *wanted, "{name}: wanted\n{wanted}\ngot\n{got}");
    }
}

/// Name, configuration, canonical text.
const CASES: &[(&str, &str, &str)] = &[
    (
        "macro",
        "\
             ext_if = \"em0\"\n\
             web = \"{ 192.0.2.80, 192.0.2.81 }\"\n\
             pass in on $ext_if proto tcp to $web port http\n",
        "\
             ext_if = \"em0\"\n\
             web = \"{ 192.0.2.80, 192.0.2.81 }\"\n\
             pass in on em0 inet proto tcp from any to 192.0.2.80 port = 80 flags S/SA\n\
             pass in on em0 inet proto tcp from any to 192.0.2.81 port = 80 flags S/SA\n",
    ),
    (
        "macro_of_macros",
        "\
             a = \"10.1.0.1\"\n\
             b = \"10.1.0.2\"\n\
             both = $a $b\n\
             pass from { $both } to any\n",
        "\
             a = \"10.1.0.1\"\n\
             b = \"10.1.0.2\"\n\
             both = \"10.1.0.1 10.1.0.2\"\n\
             pass inet from 10.1.0.1 to any flags S/SA\n\
             pass inet from 10.1.0.2 to any flags S/SA\n",
    ),
    (
        "macro_with_modifier",
        "\
             ext = em1\n\
             pass in on $ext from $ext:network to any\n\
             block out from $ext:broadcast\n",
        "\
             ext = \"em1\"\n\
             pass in on em1 inet from 10.1.0.0/16 to any flags S/SA\n\
             block drop out inet from 10.1.255.255 to any\n",
    ),
    (
        "macro_is_redefined",
        "\
             p = \"22\"\n\
             pass in proto tcp to port $p\n\
             p = \"80\"\n\
             pass in proto tcp to port $p\n",
        "\
             p = \"22\"\n\
             p = \"80\"\n\
             pass in proto tcp from any to any port = 22 flags S/SA\n\
             pass in proto tcp from any to any port = 80 flags S/SA\n",
    ),
    (
        "macro_is_not_expanded_in_quotes",
        "\
             a = em0\n\
             b = \"$a\"\n\
             pass label \"$a\"\n",
        "\
             a = \"em0\"\n\
             b = \"$a\"\n\
             pass all flags S/SA label \"$a\"\n",
    ),
    (
        "macro_of_a_number",
        "\
             p = 22\n\
             pass in proto tcp to port $p\n",
        "\
             p = \"22\"\n\
             pass in proto tcp from any to any port = 22 flags S/SA\n",
    ),
    (
        "macro_of_several_strings",
        "\
             x = \"on em0\" \"proto tcp\"\n\
             pass in $x\n",
        "\
             x = \"on em0 proto tcp\"\n\
             pass in on em0 proto tcp all flags S/SA\n",
    ),
    (
        "macro_in_the_middle",
        "\
             f = \"from 10.1.0.9\"\n\
             pass in inet $f to em1\n",
        "\
             f = \"from 10.1.0.9\"\n\
             pass in inet from 10.1.0.9 to 10.1.0.1 flags S/SA\n",
    ),
    (
        "order_of_expansion",
        "pass in on { em0 em1 } proto { tcp udp } from { 10.1.0.1 10.1.0.2 } to { 10.2.0.1 10.2.0.2 } port { 1 2 }\n",
        "\
             pass in on em0 inet proto tcp from 10.1.0.1 to 10.2.0.1 port = 1 flags S/SA\n\
             pass in on em0 inet proto tcp from 10.1.0.1 to 10.2.0.1 port = 2 flags S/SA\n\
             pass in on em0 inet proto tcp from 10.1.0.1 to 10.2.0.2 port = 1 flags S/SA\n\
             pass in on em0 inet proto tcp from 10.1.0.1 to 10.2.0.2 port = 2 flags S/SA\n\
             pass in on em0 inet proto tcp from 10.1.0.2 to 10.2.0.1 port = 1 flags S/SA\n\
             pass in on em0 inet proto tcp from 10.1.0.2 to 10.2.0.1 port = 2 flags S/SA\n\
             pass in on em0 inet proto tcp from 10.1.0.2 to 10.2.0.2 port = 1 flags S/SA\n\
             pass in on em0 inet proto tcp from 10.1.0.2 to 10.2.0.2 port = 2 flags S/SA\n\
             pass in on em0 inet proto udp from 10.1.0.1 to 10.2.0.1 port = 1\n\
             pass in on em0 inet proto udp from 10.1.0.1 to 10.2.0.1 port = 2\n\
             pass in on em0 inet proto udp from 10.1.0.1 to 10.2.0.2 port = 1\n\
             pass in on em0 inet proto udp from 10.1.0.1 to 10.2.0.2 port = 2\n\
             pass in on em0 inet proto udp from 10.1.0.2 to 10.2.0.1 port = 1\n\
             pass in on em0 inet proto udp from 10.1.0.2 to 10.2.0.1 port = 2\n\
             pass in on em0 inet proto udp from 10.1.0.2 to 10.2.0.2 port = 1\n\
             pass in on em0 inet proto udp from 10.1.0.2 to 10.2.0.2 port = 2\n\
             pass in on em1 inet proto tcp from 10.1.0.1 to 10.2.0.1 port = 1 flags S/SA\n\
             pass in on em1 inet proto tcp from 10.1.0.1 to 10.2.0.1 port = 2 flags S/SA\n\
             pass in on em1 inet proto tcp from 10.1.0.1 to 10.2.0.2 port = 1 flags S/SA\n\
             pass in on em1 inet proto tcp from 10.1.0.1 to 10.2.0.2 port = 2 flags S/SA\n\
             pass in on em1 inet proto tcp from 10.1.0.2 to 10.2.0.1 port = 1 flags S/SA\n\
             pass in on em1 inet proto tcp from 10.1.0.2 to 10.2.0.1 port = 2 flags S/SA\n\
             pass in on em1 inet proto tcp from 10.1.0.2 to 10.2.0.2 port = 1 flags S/SA\n\
             pass in on em1 inet proto tcp from 10.1.0.2 to 10.2.0.2 port = 2 flags S/SA\n\
             pass in on em1 inet proto udp from 10.1.0.1 to 10.2.0.1 port = 1\n\
             pass in on em1 inet proto udp from 10.1.0.1 to 10.2.0.1 port = 2\n\
             pass in on em1 inet proto udp from 10.1.0.1 to 10.2.0.2 port = 1\n\
             pass in on em1 inet proto udp from 10.1.0.1 to 10.2.0.2 port = 2\n\
             pass in on em1 inet proto udp from 10.1.0.2 to 10.2.0.1 port = 1\n\
             pass in on em1 inet proto udp from 10.1.0.2 to 10.2.0.1 port = 2\n\
             pass in on em1 inet proto udp from 10.1.0.2 to 10.2.0.2 port = 1\n\
             pass in on em1 inet proto udp from 10.1.0.2 to 10.2.0.2 port = 2\n",
    ),
    (
        "order_of_ports",
        "pass proto tcp from any port { 1 2 } to any port { 3 4 }\n",
        "\
             pass proto tcp from any port = 1 to any port = 3 flags S/SA\n\
             pass proto tcp from any port = 1 to any port = 4 flags S/SA\n\
             pass proto tcp from any port = 2 to any port = 3 flags S/SA\n\
             pass proto tcp from any port = 2 to any port = 4 flags S/SA\n",
    ),
    (
        "order_of_hosts_and_ports",
        "pass proto tcp from { 10.1.0.1 10.1.0.2 } port { 1 2 } to { 10.2.0.1 10.2.0.2 } port { 3 4 }\n",
        "\
             pass inet proto tcp from 10.1.0.1 port = 1 to 10.2.0.1 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.1 port = 1 to 10.2.0.1 port = 4 flags S/SA\n\
             pass inet proto tcp from 10.1.0.1 port = 2 to 10.2.0.1 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.1 port = 2 to 10.2.0.1 port = 4 flags S/SA\n\
             pass inet proto tcp from 10.1.0.1 port = 1 to 10.2.0.2 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.1 port = 1 to 10.2.0.2 port = 4 flags S/SA\n\
             pass inet proto tcp from 10.1.0.1 port = 2 to 10.2.0.2 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.1 port = 2 to 10.2.0.2 port = 4 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 1 to 10.2.0.1 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 1 to 10.2.0.1 port = 4 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 2 to 10.2.0.1 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 2 to 10.2.0.1 port = 4 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 1 to 10.2.0.2 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 1 to 10.2.0.2 port = 4 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 2 to 10.2.0.2 port = 3 flags S/SA\n\
             pass inet proto tcp from 10.1.0.2 port = 2 to 10.2.0.2 port = 4 flags S/SA\n",
    ),
    (
        "order_of_users_and_groups",
        "pass out proto tcp user { 1 2 } group { 3 4 }\n",
        "\
             pass out proto tcp all user = 1 group = 3 flags S/SA\n\
             pass out proto tcp all user = 1 group = 4 flags S/SA\n\
             pass out proto tcp all user = 2 group = 3 flags S/SA\n\
             pass out proto tcp all user = 2 group = 4 flags S/SA\n",
    ),
    (
        "order_of_systems",
        "pass in proto tcp from any os { Linux, \"Windows XP\" } to any port { 1 2 }\n",
        "\
             pass in proto tcp from any os \"Linux\" to any port = 1 flags S/SA\n\
             pass in proto tcp from any os \"Windows XP\" to any port = 1 flags S/SA\n\
             pass in proto tcp from any os \"Linux\" to any port = 2 flags S/SA\n\
             pass in proto tcp from any os \"Windows XP\" to any port = 2 flags S/SA\n",
    ),
    (
        "order_of_icmp",
        "pass inet proto icmp from { 10.1.0.1 10.1.0.2 } icmp-type { echoreq, unreach code needfrag, 11 }\n",
        "\
             pass inet proto icmp from 10.1.0.1 to any icmp-type echoreq\n\
             pass inet proto icmp from 10.1.0.2 to any icmp-type echoreq\n\
             pass inet proto icmp from 10.1.0.1 to any icmp-type unreach code needfrag\n\
             pass inet proto icmp from 10.1.0.2 to any icmp-type unreach code needfrag\n\
             pass inet proto icmp from 10.1.0.1 to any icmp-type timex\n\
             pass inet proto icmp from 10.1.0.2 to any icmp-type timex\n",
    ),
    (
        "lists_without_commas",
        "pass in proto { tcp, udp icmp }\n",
        "\
             pass in proto tcp all flags S/SA\n\
             pass in proto udp all\n\
             pass in proto icmp all\n",
    ),
    (
        "lists_with_newlines",
        "\
             pass in proto tcp from {\n\
             \t10.1.0.1\n\
             \t10.1.0.2 , 10.1.0.3\n\
             } to any\n",
        "\
             pass in inet proto tcp from 10.1.0.1 to any flags S/SA\n\
             pass in inet proto tcp from 10.1.0.2 to any flags S/SA\n\
             pass in inet proto tcp from 10.1.0.3 to any flags S/SA\n",
    ),
    (
        "nested_lists",
        "pass from { 10.1.0.1 { 10.1.0.2 { 10.1.0.3 } } } to any\n",
        "\
             pass inet from 10.1.0.1 to any flags S/SA\n\
             pass inet from 10.1.0.2 to any flags S/SA\n\
             pass inet from 10.1.0.3 to any flags S/SA\n",
    ),
    (
        "list_with_any",
        "pass from { 10.1.0.1, any } to em1\n",
        "pass inet from any to 10.1.0.1 flags S/SA\n",
    ),
    (
        "negated_list",
        "block from { !10.1.0.1, !10.1.0.2 } to any\n",
        "\
             block drop inet from ! 10.1.0.1 to any\n\
             block drop inet from ! 10.1.0.2 to any\n",
    ),
    (
        "repeated_users_are_reversed",
        "pass out proto tcp user 1 user { 2 3 } user 4 group 5 group 6\n",
        "\
             pass out proto tcp all user = 4 group = 6 flags S/SA\n\
             pass out proto tcp all user = 4 group = 5 flags S/SA\n\
             pass out proto tcp all user = 2 group = 6 flags S/SA\n\
             pass out proto tcp all user = 2 group = 5 flags S/SA\n\
             pass out proto tcp all user = 3 group = 6 flags S/SA\n\
             pass out proto tcp all user = 3 group = 5 flags S/SA\n\
             pass out proto tcp all user = 1 group = 6 flags S/SA\n\
             pass out proto tcp all user = 1 group = 5 flags S/SA\n",
    ),
    (
        "families_of_a_name",
        "pass from www.example.org to any\n",
        "\
             pass inet from 192.0.2.80 to any flags S/SA\n\
             pass inet6 from 2001:db8::80 to any flags S/SA\n",
    ),
    (
        "families_are_matched",
        "pass from { 192.0.2.1 2001:db8::1 } to { 192.0.2.9 2001:db8::9 }\n",
        "\
             pass inet from 192.0.2.1 to 192.0.2.9 flags S/SA\n\
             pass inet6 from 2001:db8::1 to 2001:db8::9 flags S/SA\n",
    ),
    (
        "family_of_the_rule",
        "\
             pass inet from www.example.org\n\
             pass inet6 from www.example.org\n",
        "\
             pass inet from 192.0.2.80 to any flags S/SA\n\
             pass inet6 from 2001:db8::80 to any flags S/SA\n",
    ),
    (
        "family_of_an_interface",
        "\
             pass from em0 to any\n\
             pass inet6 from em0 to any\n",
        "\
             pass inet from 192.0.2.2 to any flags S/SA\n\
             pass inet from 192.0.2.3 to any flags S/SA\n\
             pass inet6 from 2001:db8::2 to any flags S/SA\n\
             pass on em0 inet6 from fe80::2 to any flags S/SA\n\
             pass inet6 from 2001:db8::2 to any flags S/SA\n\
             pass on em0 inet6 from fe80::2 to any flags S/SA\n",
    ),
    (
        "family_of_all_addresses",
        "\
             pass from 10.1.0.1 to { <t> any }\n\
             pass from { 10.1.0.1 10.1.0.2 } to any\n",
        "\
             pass inet from 10.1.0.1 to any flags S/SA\n\
             pass inet from 10.1.0.1 to any flags S/SA\n\
             pass inet from 10.1.0.2 to any flags S/SA\n",
    ),
    (
        "anything_of_a_family",
        "\
             pass from 0.0.0.0/0 to any\n\
             pass from any to ::/0\n",
        "\
             pass inet all flags S/SA\n\
             pass inet6 all flags S/SA\n",
    ),
    (
        "masks",
        "\
             pass from 192.0.2.77/28 to 10.1.2.3/8\n\
             pass from 2001:db8:ffff::1/33\n",
        "\
             pass inet from 192.0.2.64/28 to 10.0.0.0/8 flags S/SA\n\
             pass inet6 from 2001:db8:8000::/33 to any flags S/SA\n",
    ),
    (
        "short_networks",
        "\
             pass from 10/8 to 172.16/12\n\
             pass from 192.0.2/24\n",
        "\
             pass inet from 10.0.0.0/8 to 172.16.0.0/12 flags S/SA\n\
             pass inet from 192.0.2.0/24 to any flags S/SA\n",
    ),
    (
        "addresses_of_6",
        "pass from 2001:0db8:0000:0000:0001:0000:0000:0001 to ::ffff:192.0.2.1\n",
        "pass inet6 from 2001:db8::1:0:0:1 to ::ffff:192.0.2.1 flags S/SA\n",
    ),
    (
        "link_local",
        "\
             pass from fe80::1%em0 to any\n\
             pass on em0 from fe80::1%em0\n",
        "\
             pass on em0 inet6 from fe80::1 to any flags S/SA\n\
             pass on em0 inet6 from fe80::1 to any flags S/SA\n",
    ),
    (
        "ranges",
        "\
             pass from 10.1.0.5 - 10.1.0.9 to any\n\
             pass from 2001:db8::5 - 2001:db8::9\n",
        "\
             pass inet from 10.1.0.5 - 10.1.0.9 to any flags S/SA\n\
             pass inet6 from 2001:db8::5 - 2001:db8::9 to any flags S/SA\n",
    ),
    (
        "negation",
        "pass from ! 10.1.0.0/16 to !em1\n",
        "pass inet from ! 10.1.0.0/16 to ! 10.1.0.1 flags S/SA\n",
    ),
    (
        "interfaces",
        "\
             pass on em0\n\
             block on ! em0\n\
             pass on any\n\
             pass on egress\n\
             pass on rdomain 1\n\
             pass on ! rdomain 1\n",
        "\
             pass on em0 all flags S/SA\n\
             block drop on ! em0 all\n\
             pass on any all flags S/SA\n\
             pass on egress all flags S/SA\n\
             pass on rdomain 1 all flags S/SA\n\
             pass on ! rdomain 1 all flags S/SA\n",
    ),
    (
        "parts_of_interfaces",
        "\
             pass from em0:network to any\n\
             pass from em0:0 to any\n\
             pass from em1:broadcast to any\n\
             pass from gif0:peer to any\n\
             pass from em0:network:0 to any\n",
        "\
             pass inet from 192.0.2.0/24 to any flags S/SA\n\
             pass inet from 192.0.2.0/24 to any flags S/SA\n\
             pass inet6 from 2001:db8::/64 to any flags S/SA\n\
             pass inet from 192.0.2.2 to any flags S/SA\n\
             pass inet6 from 2001:db8::2 to any flags S/SA\n\
             pass inet from 10.1.255.255 to any flags S/SA\n\
             pass inet from 10.9.0.2 to any flags S/SA\n\
             pass inet from 192.0.2.0/24 to any flags S/SA\n\
             pass inet6 from 2001:db8::/64 to any flags S/SA\n",
    ),
    (
        "dynamic_interfaces",
        "\
             pass from (em0) to (em1:network)\n\
             pass from (em0:0) to (egress:broadcast)/24\n\
             pass inet from (em0:network:0)/28\n\
             pass inet6 from (gif0:peer)/64\n",
        "\
             pass from (em0) to (em1:network) flags S/SA\n\
             pass from (em0:0) to (egress:broadcast)/24 flags S/SA\n\
             pass inet from (em0:network:0)/28 to any flags S/SA\n\
             pass inet6 from (gif0:peer)/64 to any flags S/SA\n",
    ),
    (
        "self",
        "block from self to any\n",
        "\
             block drop inet6 from ::1 to any\n\
             block drop on lo0 inet6 from fe80::1 to any\n\
             block drop inet from 127.0.0.1 to any\n\
             block drop inet from 192.0.2.2 to any\n\
             block drop inet from 192.0.2.3 to any\n\
             block drop inet6 from 2001:db8::2 to any\n\
             block drop on em0 inet6 from fe80::2 to any\n\
             block drop inet from 10.1.0.1 to any\n\
             block drop inet from 10.9.0.1 to any\n",
    ),
    (
        "groups_of_interfaces",
        "pass from egress to em:network\n",
        "\
             pass inet from 192.0.2.2 to 192.0.2.0/24 flags S/SA\n\
             pass inet from 192.0.2.2 to 192.0.2.0/24 flags S/SA\n\
             pass inet from 192.0.2.2 to 10.1.0.0/16 flags S/SA\n\
             pass inet from 192.0.2.3 to 192.0.2.0/24 flags S/SA\n\
             pass inet from 192.0.2.3 to 192.0.2.0/24 flags S/SA\n\
             pass inet from 192.0.2.3 to 10.1.0.0/16 flags S/SA\n\
             pass inet6 from 2001:db8::2 to 2001:db8::/64 flags S/SA\n\
             pass on em0 inet6 from fe80::2 to 2001:db8::/64 flags S/SA\n",
    ),
    (
        "received_on",
        "\
             pass out received-on em1\n\
             pass out ! received-on egress\n",
        "\
             pass out all received-on em1 flags S/SA\n\
             pass out all !received-on egress flags S/SA\n",
    ),
    (
        "ports",
        "\
             pass proto tcp to port 22\n\
             pass proto tcp to port ssh\n\
             pass proto udp from port 1024:65535 to port != 53\n\
             pass proto tcp to port > 1023\n\
             pass proto tcp to port >= 1024\n\
             pass proto tcp to port < 10\n\
             pass proto tcp to port <= 10\n\
             pass proto tcp to port 10 >< 20\n\
             pass proto tcp to port 10 <> 20\n\
             pass proto tcp to port = http\n\
             pass proto tcp to port metrics\n\
             pass proto tcp to port 80:80\n",
        "\
             pass proto tcp from any to any port = 22 flags S/SA\n\
             pass proto tcp from any to any port = 22 flags S/SA\n\
             pass proto udp from any port 1024:65535 to any port != 53\n\
             pass proto tcp from any to any port > 1023 flags S/SA\n\
             pass proto tcp from any to any port >= 1024 flags S/SA\n\
             pass proto tcp from any to any port < 10 flags S/SA\n\
             pass proto tcp from any to any port <= 10 flags S/SA\n\
             pass proto tcp from any to any port 10 >< 20 flags S/SA\n\
             pass proto tcp from any to any port 10 <> 20 flags S/SA\n\
             pass proto tcp from any to any port = 80 flags S/SA\n\
             pass proto tcp from any to any port = 9100 flags S/SA\n\
             pass proto tcp from any to any port = 80 flags S/SA\n",
    ),
    (
        "ports_in_c",
        "\
             pass proto tcp to port 0x50\n\
             pass proto tcp to port \"010\"\n",
        "\
             pass proto tcp from any to any port = 80 flags S/SA\n\
             pass proto tcp from any to any port = 8 flags S/SA\n",
    ),
    (
        "peers",
        "\
             pass all\n\
             pass from any to any\n\
             pass to 10.1.0.1\n\
             pass from 10.1.0.1\n\
             pass proto tcp from port 1\n\
             pass proto tcp to port 1\n",
        "\
             pass all flags S/SA\n\
             pass all flags S/SA\n\
             pass inet from any to 10.1.0.1 flags S/SA\n\
             pass inet from 10.1.0.1 to any flags S/SA\n\
             pass proto tcp from any port = 1 to any flags S/SA\n\
             pass proto tcp from any to any port = 1 flags S/SA\n",
    ),
    (
        "protocols",
        "\
             pass proto icmp\n\
             pass proto ipv6-icmp\n\
             pass proto icmp6\n\
             pass proto 47\n\
             pass proto ah\n\
             pass proto 254\n\
             pass proto { tcp 17 esp }\n",
        "\
             pass proto icmp all\n\
             pass proto ipv6-icmp all\n\
             pass proto ipv6-icmp all\n\
             pass proto gre all\n\
             pass proto ah all\n\
             pass proto 254 all\n\
             pass proto tcp all flags S/SA\n\
             pass proto udp all\n\
             pass proto esp all\n",
    ),
    (
        "actions",
        "\
             pass\n\
             block\n\
             match\n\
             block drop\n\
             block return\n\
             block return-rst proto tcp\n\
             block return-rst(ttl 30) proto tcp\n\
             block return-icmp\n\
             block return-icmp6\n\
             block return-icmp(host-unr, noroute-unr)\n\
             block return-icmp(13)\n\
             block return-icmp6(4)\n",
        "\
             pass all flags S/SA\n\
             block drop all\n\
             match all\n\
             block drop all\n\
             block return all\n\
             block return-rst proto tcp all\n\
             block return-rst(ttl 30) proto tcp all\n\
             block return-icmp(port-unr, port-unr) all\n\
             block return-icmp(port-unr, port-unr) all\n\
             block return-icmp(host-unr, noroute-unr) all\n\
             block return-icmp(filter-prohib, port-unr) all\n\
             block return-icmp(port-unr, port-unr) all\n",
    ),
    (
        "returns_of_a_family",
        "\
             block return-icmp(net-unr, addr-unr) inet\n\
             block return-icmp(net-unr, addr-unr) inet6\n",
        "\
             block return-icmp(net-unr) inet all\n\
             block return-icmp6(addr-unr) inet6 all\n",
    ),
    (
        "block_policy_is_positional",
        "\
             block in\n\
             set block-policy return\n\
             block in\n\
             set block-policy drop\n\
             block in\n",
        "\
             set block-policy return\n\
             set block-policy drop\n\
             block drop in all\n\
             block return in all\n\
             block drop in all\n",
    ),
    (
        "log",
        "\
             pass log\n\
             pass log (all)\n\
             pass log (all, matches, user)\n\
             pass log (to pflog1)\n\
             pass log (all to pflog2)\n\
             pass quick log\n\
             pass log quick\n",
        "\
             pass log all flags S/SA\n\
             pass log (all) all flags S/SA\n\
             pass log (all, matches, user) all flags S/SA\n\
             pass log (to pflog1) all flags S/SA\n\
             pass log (all, to pflog2) all flags S/SA\n\
             pass log quick all flags S/SA\n\
             pass log quick all flags S/SA\n",
    ),
    (
        "directions",
        "\
             pass in\n\
             pass out\n\
             pass in quick\n",
        "\
             pass in all flags S/SA\n\
             pass out all flags S/SA\n\
             pass in quick all flags S/SA\n",
    ),
    (
        "state_by_default",
        "\
             pass\n\
             pass no state\n\
             pass keep state\n\
             pass modulate state\n\
             pass synproxy state\n\
             pass proto udp\n\
             pass proto tcp\n",
        "\
             pass all flags S/SA\n\
             pass all no state\n\
             pass all flags S/SA\n\
             pass all flags S/SA modulate state\n\
             pass all flags S/SA synproxy state\n\
             pass proto udp all\n\
             pass proto tcp all flags S/SA\n",
    ),
    (
        "state_of_other_protocols",
        "\
             pass proto { tcp udp } modulate state\n\
             pass in proto { tcp udp } synproxy state\n",
        "\
             pass proto tcp all flags S/SA modulate state\n\
             pass proto udp all\n\
             pass in proto tcp all flags S/SA synproxy state\n\
             pass in proto udp all\n",
    ),
    (
        "flags",
        "\
             pass proto tcp flags S/SA\n\
             pass proto tcp flags any\n\
             pass proto tcp flags /SFRA\n\
             pass proto tcp flags FPU/FSRPAUEW\n\
             pass proto { tcp udp } flags S/SAFR\n\
             block proto tcp flags F/SF\n\
             pass proto tcp no state\n\
             pass flags any\n\
             pass fragment\n",
        "\
             pass proto tcp all flags S/SA\n\
             pass proto tcp all flags any\n\
             pass proto tcp all flags /FSRA\n\
             pass proto tcp all flags FPU/FSRPAUEW\n\
             pass proto tcp all flags S/FSRA\n\
             pass proto udp all\n\
             block drop proto tcp all flags F/FS\n\
             pass proto tcp all no state\n\
             pass all flags any\n\
             pass all fragment\n",
    ),
    (
        "state_options",
        "\
             pass keep state (max 100)\n\
             pass keep state (max 100)\n\
             pass keep state (no-sync, sloppy, pflow)\n\
             pass keep state (if-bound)\n\
             pass keep state (floating)\n\
             pass keep state (tcp.first 10 udp.single 20, tcp.established 30)\n",
        "\
             pass all flags S/SA keep state (max 100, adaptive.start 60, adaptive.end 120)\n\
             pass all flags S/SA keep state (max 100, adaptive.start 60, adaptive.end 120)\n\
             pass all flags S/SA keep state (no-sync, sloppy, pflow)\n\
             pass all flags S/SA keep state (if-bound)\n\
             pass all flags S/SA\n\
             pass all flags S/SA keep state (tcp.first 10, tcp.established 30, udp.single 20)\n",
    ),
    (
        "source_tracking",
        "\
             pass keep state (source-track)\n\
             pass keep state (source-track rule)\n\
             pass keep state (source-track global, max-src-states 3)\n\
             pass keep state (max-src-states 5)\n\
             pass keep state (max-src-nodes 7)\n\
             pass keep state (max-src-conn 9)\n\
             pass keep state (max-src-conn-rate 10/20)\n\
             pass keep state (max-src-conn 9, overload <bad>)\n\
             pass keep state (max-src-conn 9, overload <bad> flush)\n\
             pass keep state (max-src-conn-rate 1/2, overload <bad> flush global)\n",
        "\
             pass all flags S/SA keep state (source-track global)\n\
             pass all flags S/SA keep state (source-track rule)\n\
             pass all flags S/SA keep state (source-track global, max-src-states 3)\n\
             pass all flags S/SA keep state (source-track global, max-src-states 5)\n\
             pass all flags S/SA keep state (source-track rule, max-src-nodes 7)\n\
             pass all flags S/SA keep state (source-track rule, max-src-conn 9)\n\
             pass all flags S/SA keep state (source-track rule, max-src-conn-rate 10/20, src.track 20)\n\
             pass all flags S/SA keep state (source-track rule, max-src-conn 9, overload <bad>)\n\
             pass all flags S/SA keep state (source-track rule, max-src-conn 9, overload <bad> flush)\n\
             pass all flags S/SA keep state (source-track rule, max-src-conn-rate 1/2, overload <bad> flush global, src.track 2)\n",
    ),
    (
        "state_policy",
        "\
             pass\n\
             set state-policy if-bound\n\
             pass\n\
             pass keep state (floating)\n\
             pass no state\n\
             set state-policy floating\n\
             pass\n",
        "\
             set state-policy if-bound\n\
             set state-policy floating\n\
             pass all flags S/SA\n\
             pass all flags S/SA keep state (if-bound)\n\
             pass all flags S/SA\n\
             pass all no state\n\
             pass all flags S/SA\n",
    ),
    (
        "state_defaults",
        "\
             pass\n\
             set state-defaults no-sync, tcp.first 7\n\
             pass\n\
             pass keep state\n\
             block\n",
        "\
             pass all flags S/SA\n\
             pass all flags S/SA keep state (no-sync, tcp.first 7)\n\
             pass all flags S/SA\n\
             block drop all\n",
    ),
    (
        "tos",
        "\
             pass tos lowdelay\n\
             pass tos 0x10\n\
             pass tos 16\n\
             pass tos af21\n\
             pass tos EF\n\
             pass tos cs7\n",
        "\
             pass all flags S/SA tos 0x10\n\
             pass all flags S/SA tos 0x10\n\
             pass all flags S/SA tos 0x10\n\
             pass all flags S/SA tos 0x48\n\
             pass all flags S/SA tos 0xb8\n\
             pass all flags S/SA tos 0xe0\n",
    ),
    (
        "probability",
        "\
             pass probability 50%\n\
             pass probability 0.25\n\
             pass probability 1\n\
             pass probability 0\n\
             pass probability 33.333%\n",
        "\
             pass all flags S/SA probability 50%\n\
             pass all flags S/SA probability 25%\n\
             pass all flags S/SA probability 100%\n\
             pass all flags S/SA probability 0%\n\
             pass all flags S/SA probability 33.333%\n",
    ),
    (
        "prio",
        "\
             pass prio 3\n\
             pass set prio 5\n\
             pass set prio (2, 6)\n\
             pass set (prio 1, tos lowdelay, delay 20)\n\
             pass set tos 0x20 set delay 7\n",
        "\
             pass all flags S/SA prio 3\n\
             pass all flags S/SA set (prio 5)\n\
             pass all flags S/SA set (prio(2, 6))\n\
             pass all flags S/SA set (prio 1, tos 0x10, delay 20)\n\
             pass all flags S/SA set (tos 0x20, delay 7)\n",
    ),
    (
        "rates",
        "\
             pass max-pkt-rate 100/10\n\
             pass rtable 1\n",
        "\
             pass all flags S/SA max-pkt-rate 100/10\n\
             pass all flags S/SA rtable 1\n",
    ),
    (
        "fragments_options_once",
        "\
             block fragment\n\
             pass allow-opts\n\
             pass once\n\
             block in once\n",
        "\
             block drop all fragment\n\
             pass all flags S/SA allow-opts\n\
             pass all flags S/SA once\n\
             block drop in all once\n",
    ),
    (
        "scrub",
        "\
             match scrub (no-df)\n\
             match in scrub (random-id, min-ttl 5, max-mss 1440, reassemble tcp)\n\
             pass scrub (max-mss 1200)\n",
        "\
             match all scrub (no-df)\n\
             match in all scrub (random-id min-ttl 5 reassemble tcp max-mss 1440)\n\
             pass all flags S/SA scrub (max-mss 1200)\n",
    ),
    (
        "tags",
        "\
             pass tag A\n\
             block tagged A\n\
             block ! tagged B\n\
             pass tag \"two words\" tagged two words\n",
        "\
             pass all flags S/SA tag A\n\
             block drop all tagged A\n\
             block drop all ! tagged B\n\
             pass all flags S/SA tag two words tagged two words\n",
    ),
    (
        "labels",
        "\
             pass in on em0 proto tcp from 10.1.0.1 to { 10.2.0.1, !10.2.0.2 } port { 22, > 1023 } label \"$nr $if $proto $srcaddr:$srcport $dstaddr:$dstport\"\n\
             pass from (em0) to <t> label \"$srcaddr $dstaddr $if $proto\"\n\
             block all label \"$nr\"\n",
        "\
             pass in on em0 inet proto tcp from 10.1.0.1 to 10.2.0.1 port = 22 flags S/SA label \"0 em0 tcp 10.1.0.1: 10.2.0.1:22\"\n\
             pass in on em0 inet proto tcp from 10.1.0.1 to 10.2.0.1 port > 1023 flags S/SA label \"1 em0 tcp 10.1.0.1: 10.2.0.1:>1023\"\n\
             pass in on em0 inet proto tcp from 10.1.0.1 to ! 10.2.0.2 port = 22 flags S/SA label \"2 em0 tcp 10.1.0.1: ! 10.2.0.2:22\"\n\
             pass in on em0 inet proto tcp from 10.1.0.1 to ! 10.2.0.2 port > 1023 flags S/SA label \"3 em0 tcp 10.1.0.1: ! 10.2.0.2:>1023\"\n\
             pass from (em0) to <t> flags S/SA label \"(em0) <t> any ip\"\n\
             block drop all label \"5\"\n",
    ),
    (
        "labels_have_masked_addresses",
        "\
             pass from 10.1.2.3/16 label \"$srcaddr\"\n\
             pass inet6 to 2001:db8::1/32 label \"$dstaddr\"\n",
        "\
             pass inet from 10.1.0.0/16 to any flags S/SA label \"10.1.0.0/16\"\n\
             pass inet6 from any to 2001:db8::/32 flags S/SA label \"2001:db8::/32\"\n",
    ),
    (
        "tags_are_filled_in",
        "pass in on { em0, em1 } tag \"from $if\" tagged \"nr $nr\"\n",
        "\
             pass in on em0 all flags S/SA tag from em0 tagged nr 0\n\
             pass in on em1 all flags S/SA tag from em1 tagged nr 1\n",
    ),
    (
        "users",
        "\
             pass out proto tcp user root\n\
             pass out proto tcp user alice\n\
             pass out proto tcp user unknown\n\
             pass out proto tcp user != 5\n\
             pass out proto tcp user { 5 >< 9, 5 <> 9, >= 1000, < 3 }\n\
             pass out proto udp group { wheel, daemon }\n",
        "\
             pass out proto tcp all user = 0 flags S/SA\n\
             pass out proto tcp all user = 1000 flags S/SA\n\
             pass out proto tcp all user = unknown flags S/SA\n\
             pass out proto tcp all user != 5 flags S/SA\n\
             pass out proto tcp all user 5 >< 9 flags S/SA\n\
             pass out proto tcp all user 5 <> 9 flags S/SA\n\
             pass out proto tcp all user >= 1000 flags S/SA\n\
             pass out proto tcp all user < 3 flags S/SA\n\
             pass out proto udp all group = 0\n\
             pass out proto udp all group = 1\n",
    ),
    (
        "icmp_types",
        "\
             pass inet proto icmp icmp-type echoreq\n\
             pass inet proto icmp icmp-type 8 code 0\n\
             pass inet proto icmp icmp-type { unreach code port-unr, timex, 200 code 9 }\n\
             pass inet6 proto icmp6 icmp6-type { echoreq, 135, unreach code 4, toobig }\n",
        "\
             pass inet proto icmp all icmp-type echoreq\n\
             pass inet proto icmp all icmp-type echoreq code 0\n\
             pass inet proto icmp all icmp-type unreach code port-unr\n\
             pass inet proto icmp all icmp-type timex\n\
             pass inet proto icmp all icmp-type 200 code 9\n\
             pass inet6 proto ipv6-icmp all icmp6-type echoreq\n\
             pass inet6 proto ipv6-icmp all icmp6-type neighbrsol\n\
             pass inet6 proto ipv6-icmp all icmp6-type unreach code port-unr\n\
             pass inet6 proto ipv6-icmp all icmp6-type toobig\n",
    ),
    (
        "os",
        "\
             pass in proto tcp from any os \"OpenBSD 7.0\" to any\n\
             pass in proto { tcp } from { 10.1.0.1 } os Linux\n",
        "\
             pass in proto tcp from any os \"OpenBSD 7.0\" to any flags S/SA\n\
             pass in inet proto tcp from 10.1.0.1 os \"Linux\" to any flags S/SA\n",
    ),
    (
        "antispoof",
        "\
             antispoof for em0\n\
             antispoof quick for em1 inet\n\
             antispoof log quick for lo0\n",
        "\
             block drop in on ! em0 inet from 192.0.2.0/24 to any\n\
             block drop in on ! em0 inet from 192.0.2.0/24 to any\n\
             block drop in on ! em0 inet6 from 2001:db8::/64 to any\n\
             block drop in inet from 192.0.2.2 to any\n\
             block drop in inet from 192.0.2.3 to any\n\
             block drop in inet6 from 2001:db8::2 to any\n\
             block drop in on em0 inet6 from fe80::2 to any\n\
             block drop in quick on ! em1 inet from 10.1.0.0/16 to any\n\
             block drop in quick inet from 10.1.0.1 to any\n\
             block drop in log quick on ! lo0 inet6 from ::1 to any\n\
             block drop in log quick on ! lo0 inet from 127.0.0.0/8 to any\n",
    ),
    (
        "antispoof_dynamic",
        "\
             antispoof for (em1)\n\
             antispoof for { em1 (em0) } label \"spoof\" rtable 1\n",
        "\
             block drop in on ! em1 from (em1:network) to any\n\
             block drop in from (em1) to any\n\
             block drop in on ! em1 inet from 10.1.0.0/16 to any label \"spoof\" rtable 1\n\
             block drop in inet from 10.1.0.1 to any label \"spoof\" rtable 1\n\
             block drop in on ! em0 from (em0:network) to any label \"spoof\" rtable 1\n\
             block drop in from (em0) to any label \"spoof\" rtable 1\n",
    ),
    (
        "antispoof_of_a_family",
        "antispoof for em0 inet6\n",
        "\
             block drop in on ! em0 inet6 from 2001:db8::/64 to any\n\
             block drop in inet6 from 2001:db8::2 to any\n\
             block drop in on em0 inet6 from fe80::2 to any\n",
    ),
    (
        "anchors",
        "\
             anchor one\n\
             anchor \"two/*\" in on em0 proto tcp from 10.1.0.1 to any port 80\n\
             anchor \"/abs\" quick\n\
             anchor \"../up\" tagged X\n",
        "\
             anchor \"one\" all\n\
             anchor \"two/*\" in on em0 inet proto tcp from 10.1.0.1 to any port = 80\n\
             anchor \"/abs\" quick all\n\
             anchor \"../up\" all tagged X\n",
    ),
    (
        "anchors_with_rules",
        "\
             anchor \"in\" in on em0 {\n\
             \tblock\n\
             \tpass proto tcp to port ssh\n\
             }\n",
        "\
             anchor \"in\" in on em0 all {\n\
             \x20 block drop all\n\
             \x20 pass proto tcp from any to any port = 22 flags S/SA\n\
             }\n",
    ),
    (
        "anchors_without_names",
        "\
             anchor {\n\
             \tpass in\n\
             }\n\
             anchor out {\n\
             \tanchor {\n\
             \t\tblock\n\
             \t}\n\
             \tpass\n\
             }\n",
        "\
             anchor all {\n\
             \x20 pass in all flags S/SA\n\
             }\n\
             anchor out all {\n\
             \x20 anchor all {\n\
             \x20   block drop all\n\
             \x20 }\n\
             \x20 pass all flags S/SA\n\
             }\n",
    ),
    (
        "empty_anchor",
        "\
             anchor \"e\" {\n\
             }\n",
        "anchor \"e\" all\n",
    ),
    (
        "anchors_in_lists",
        "\
             anchor \"twice\" on { em0 em1 } {\n\
             \tpass\n\
             }\n",
        "\
             anchor \"twice\" on em0 all {\n\
             \x20 pass all flags S/SA\n\
             }\n\
             anchor \"twice\" on em1 all\n",
    ),
    (
        "anchor_with_table_and_comment",
        "\
             anchor \"t\" {\n\
             \ttable <inner> { 10.1.0.1 }\n\
             \t# a comment\n\
             \n\
             \tpass from <inner>\n\
             }\n",
        "\
             table <inner> { 10.1.0.1 }\n\
             anchor \"t\" all {\n\
             \x20 pass from <inner> to any flags S/SA\n\
             }\n",
    ),
    (
        "block_policy_in_anchors",
        "\
             set block-policy return\n\
             anchor a {\n\
             \tblock\n\
             }\n\
             set block-policy drop\n",
        "\
             set block-policy return\n\
             set block-policy drop\n\
             anchor \"a\" all {\n\
             \x20 block return all\n\
             }\n",
    ),
    (
        "tables",
        "\
             table <a>\n\
             table <b> persist\n\
             table <c> const { 10.1.0.1 }\n\
             table <d> counters persist const { 10.1/16, !10.1.2.0/24 2001:db8::/32 }\n\
             table <e> { }\n\
             pass from <a> to !<b>\n",
        "\
             table <a>\n\
             table <b> persist\n\
             table <c> const { 10.1.0.1 }\n\
             table <d> const persist counters { 10.1.0.0/16 !10.1.2.0/24 2001:db8::/32 }\n\
             table <e> { }\n\
             pass from <a> to ! <b> flags S/SA\n",
    ),
    (
        "table_of_files",
        "\
             table <f> file \"addresses\" { 10.9.9.9 } file \"more\"\n\
             table <g> persist file \"addresses\"\n",
        "\
             table <f> file \"addresses\" { 10.9.9.9 } file \"more\"\n\
             table <g> persist file \"addresses\"\n",
    ),
    (
        "table_of_names",
        "table <n> { em1, em1:network, www.example.org, self }\n",
        "table <n> { 10.1.0.1 10.1.0.0/16 192.0.2.80 2001:db8::80 ::1 fe80::1 127.0.0.1 192.0.2.2 192.0.2.3 2001:db8::2 fe80::2 10.1.0.1 10.9.0.1 }\n",
    ),
    (
        "table_weights",
        "\
             table <w> { 10.1.0.1 weight 5, 10.1.0.2 weight 7 }\n\
             pass out to any nat-to <w> least-states\n",
        "\
             table <w> { 10.1.0.1 10.1.0.2 }\n\
             pass out all flags S/SA nat-to <w> least-states\n",
    ),
    (
        "table_negations",
        "table <x> { !10.1.0.1, 10.1.0.0/24, { 10.2/16 !10.2.1.0/24 } }\n",
        "table <x> { !10.1.0.1 10.1.0.0/24 10.2.0.0/16 !10.2.1.0/24 }\n",
    ),
    (
        "nat",
        "\
             pass out on em0 from 10.1/16 nat-to 192.0.2.2\n\
             pass out nat-to (em0)\n\
             pass out nat-to (em0:0)\n\
             pass out inet nat-to em0\n\
             pass out from 10.1/16 nat-to 192.0.2.64/28 bitmask\n\
             pass out from 10.1/16 nat-to 192.0.2.2 static-port\n\
             pass out from 10.1/16 nat-to 192.0.2.2 port 1000:2000\n\
             pass out from 10.1/16 nat-to 192.0.2.2 port 1000\n\
             match out from 10.1/16 nat-to 192.0.2.2\n",
        "\
             table <__automatic_0> const { 192.0.2.2 192.0.2.3 }\n\
             pass out on em0 inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.2\n\
             pass out all flags S/SA nat-to (em0) round-robin\n\
             pass out all flags S/SA nat-to (em0:0)\n\
             pass out inet all flags S/SA nat-to <__automatic_0> round-robin\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.64/28 bitmask\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.2 static-port\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.2 port 1000:2000\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.2 port 1000\n\
             match out inet from 10.1.0.0/16 to any nat-to 192.0.2.2\n",
    ),
    (
        "nat_pools",
        "\
             pass out from 10.1/16 nat-to { 192.0.2.2, 192.0.2.3 }\n\
             pass out from 10.1/16 nat-to { 192.0.2.2 192.0.2.3 } random sticky-address\n\
             pass out from 10.1/16 nat-to 192.0.2.0/24 source-hash 0x0123456789abcdef0123456789abcdef\n\
             pass out from 10.1/16 nat-to 192.0.2.0/24 source-hash secret\n\
             pass out from 10.1/16 nat-to 192.0.2.0/24 source-hash\n\
             pass out nat-to <pool> round-robin\n",
        "\
             table <__automatic_0> const { 192.0.2.2 192.0.2.3 }\n\
             table <__automatic_1> const { 192.0.2.2 192.0.2.3 }\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to <__automatic_0> round-robin\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to <__automatic_1> random sticky-address\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.0/24 source-hash 0x0123456789abcdef0123456789abcdef\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.0/24 source-hash 0x5ebe2294ecd0e0f08eab7690d2a6ee69\n\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.0/24 source-hash\n\
             pass out all flags S/SA nat-to <pool> round-robin\n",
    ),
    (
        "rdr",
        "\
             pass in proto tcp to 192.0.2.2 port 80 rdr-to 10.1.0.5\n\
             pass in proto tcp to 192.0.2.2 port 80 rdr-to 10.1.0.5 port 8080\n\
             pass in proto tcp to 192.0.2.2 port 80:90 rdr-to 10.1.0.5 port 8080:*\n\
             pass in proto tcp to 192.0.2.2 port 80 rdr-to 10.1.0.5 port 8080:8090\n\
             pass in proto tcp to port 80 rdr-to { 10.1.0.5, 10.1.0.6 weight 2 } least-states\n",
        "\
             table <__automatic_0> const { 10.1.0.5 10.1.0.6 }\n\
             pass in inet proto tcp from any to 192.0.2.2 port = 80 flags S/SA rdr-to 10.1.0.5\n\
             pass in inet proto tcp from any to 192.0.2.2 port = 80 flags S/SA rdr-to 10.1.0.5 port 8080\n\
             pass in inet proto tcp from any to 192.0.2.2 port 80:90 flags S/SA rdr-to 10.1.0.5 port 8080:8090\n\
             pass in inet proto tcp from any to 192.0.2.2 port = 80 flags S/SA rdr-to 10.1.0.5 port 8080:8090\n\
             pass in inet proto tcp from any to any port = 80 flags S/SA rdr-to <__automatic_0> least-states\n",
    ),
    (
        "pools_have_the_family_of_the_addresses",
        "\
             pass out from 10.1/16 nat-to www.example.org\n\
             pass out to { 2001:db8::1 2001:db8::2 } nat-to www.example.org\n\
             pass in proto tcp to 192.0.2.2 port 80 rdr-to localhost\n",
        "\
             pass out inet from 10.1.0.0/16 to any flags S/SA nat-to 192.0.2.80\n\
             pass out inet6 from any to 2001:db8::1 flags S/SA nat-to 2001:db8::80\n\
             pass out inet6 from any to 2001:db8::2 flags S/SA nat-to 2001:db8::80\n\
             pass in inet proto tcp from any to 192.0.2.2 port = 80 flags S/SA rdr-to 127.0.0.1\n",
    ),
    (
        "rdr_makes_a_table_for_each_rule",
        "pass in proto { tcp udp } to port 53 rdr-to { 10.1.0.5, 10.1.0.6 }\n",
        "\
             table <__automatic_0> const { 10.1.0.5 10.1.0.6 }\n\
             table <__automatic_1> const { 10.1.0.5 10.1.0.6 }\n\
             pass in inet proto tcp from any to any port = 53 flags S/SA rdr-to <__automatic_0> round-robin\n\
             pass in inet proto udp from any to any port = 53 rdr-to <__automatic_1> round-robin\n",
    ),
    (
        "binat",
        "\
             pass on em0 from 10.1.0.5 to any binat-to 192.0.2.5\n\
             pass proto tcp from 10.1.0.5 port 22 to 10.2/16 port 80 binat-to (em0:0)\n\
             pass quick from 10.1.1.0/24 binat-to 192.0.2.0/24\n",
        "\
             pass out on em0 inet from 10.1.0.5 to any flags S/SA nat-to 192.0.2.5 static-port\n\
             pass in on em0 inet from any to 192.0.2.5 flags S/SA rdr-to 10.1.0.5\n\
             pass out inet proto tcp from 10.1.0.5 port = 22 to 10.2.0.0/16 port = 80 flags S/SA nat-to (em0:0) static-port\n\
             pass in inet proto tcp from 10.2.0.0/16 port = 80 to (em0:0) port = 22 flags S/SA rdr-to 10.1.0.5\n\
             pass out quick inet from 10.1.1.0/24 to any flags S/SA nat-to 192.0.2.0/24 static-port\n\
             pass in quick inet from any to 192.0.2.0/24 flags S/SA rdr-to 10.1.1.0/24\n",
    ),
    (
        "af_to",
        "\
             pass in inet6 from any to 64:ff9b::/96 af-to inet from 192.0.2.2\n\
             pass in inet to 192.0.2.9 af-to inet6 from 2001:db8::2 to 2001:db8::9\n",
        "\
             pass in inet6 from any to 64:ff9b::/96 flags S/SA af-to inet from 192.0.2.2\n\
             pass in inet from any to 192.0.2.9 flags S/SA af-to inet6 from 2001:db8::2 to 2001:db8::9\n",
    ),
    (
        "routes",
        "\
             pass in route-to 10.1.0.2\n\
             pass in on em0 reply-to (gif0:peer)\n\
             pass out dup-to { 10.1.0.2, 10.1.0.3 } round-robin\n\
             pass dup-to 10.1.0.9\n",
        "\
             table <__automatic_0> const { 10.1.0.2 10.1.0.3 }\n\
             pass in inet all flags S/SA route-to 10.1.0.2\n\
             pass in on em0 all flags S/SA reply-to (gif0:peer) round-robin\n\
             pass out inet all flags S/SA dup-to <__automatic_0> round-robin\n\
             pass inet all flags S/SA dup-to 10.1.0.9\n",
    ),
    (
        "divert",
        "\
             pass in proto tcp to port 80 divert-to 127.0.0.1 port 8080\n\
             pass out divert-reply\n\
             pass in divert-packet port 700\n\
             set reassemble no\n\
             pass in divert-packet port 700\n",
        "\
             set reassemble no \n\
             pass in inet proto tcp from any to any port = 80 flags S/SA divert-to 127.0.0.1 port 8080\n\
             pass out all flags S/SA divert-reply\n\
             pass in all flags S/SA scrub (reassemble tcp) divert-packet port 700\n\
             pass in all flags S/SA divert-packet port 700\n",
    ),
    (
        "settings",
        "\
             set skip on lo0\n\
             set skip on { lo, em1 }\n\
             set skip on none\n\
             set reassemble yes\n\
             set reassemble no\n\
             set reassemble yes no-df\n\
             set loginterface em0\n\
             set loginterface all\n\
             set hostid 0x12\n\
             set hostid 7\n\
             set debug err\n\
             set debug debug\n\
             set fingerprints \"/etc/pf.os\"\n\
             set optimization aggressive\n\
             set ruleset-optimization none\n\
             set syncookies never\n\
             set syncookies always\n\
             set syncookies adaptive\n\
             set syncookies adaptive (start 20%, end 10%)\n\
             set state-policy if-bound\n\
             set block-policy return\n",
        "\
             set skip on { lo0 }\n\
             set skip on { lo em1 }\n\
             set skip on none\n\
             set reassemble yes \n\
             set reassemble no \n\
             set reassemble yes no-df\n\
             set loginterface em0\n\
             set loginterface all\n\
             set hostid 0x00000012\n\
             set hostid 0x00000007\n\
             set debug err\n\
             set debug debug\n\
             set fingerprints \"/etc/pf.os\"\n\
             set optimization aggressive\n\
             set syncookies never\n\
             set syncookies always\n\
             set syncookies adaptive\n\
             set syncookies adaptive (start 20%, end 10%)\n\
             set state-policy if-bound\n\
             set block-policy return\n",
    ),
    (
        "timeouts_and_limits",
        "\
             set timeout interval 20\n\
             set timeout { tcp.first 5, udp.first 6 icmp.error 7 }\n\
             set timeout {\n\
             \ttcp.first 8\n\
             \tfrag 9\n\
             }\n\
             set limit states 500\n\
             set limit { src-nodes 1, frags 2, tables 3, table-entries 4 }\n",
        "\
             set timeout interval 20\n\
             set timeout tcp.first 5\n\
             set timeout udp.first 6\n\
             set timeout icmp.error 7\n\
             set timeout tcp.first 8\n\
             set timeout frag 9\n\
             set limit states 500\n\
             set limit src-nodes 1\n\
             set limit frags 2\n\
             set limit tables 3\n\
             set limit table-entries 4\n",
    ),
    (
        "queues",
        "\
             queue root on em0 bandwidth 100M max 100M\n\
             queue std parent root bandwidth 10M min 5M, max 20M default qlimit 60\n\
             queue ssh parent root bandwidth 500K burst 1M for 50ms\n\
             queue fq on em1 flows 1024 quantum 300 default\n\
             pass set queue ssh\n\
             pass set queue (std, ssh)\n\
             match queue std\n",
        "\
             queue root on em0 bandwidth 100M, max 100M\n\
             queue std parent root bandwidth 10M, min 5M, max 20M default qlimit 60\n\
             queue ssh parent root bandwidth 500K burst 1M for 50ms\n\
             queue fq on em1 flows 1024 quantum 300 default\n\
             pass all flags S/SA set (queue ssh)\n\
             pass all flags S/SA set (queue(std, ssh))\n\
             match all set (queue std)\n",
    ),
    (
        "queues_are_sorted",
        "\
             queue b parent a bandwidth 1M default\n\
             queue a on em0 bandwidth 2M\n",
        "\
             queue a on em0 bandwidth 2M\n\
             queue b parent a bandwidth 1M default\n",
    ),
    (
        "include",
        "\
             block\n\
             include \"rules\"\n\
             pass out\n",
        "\
             block drop all\n\
             pass in proto tcp from any to any port = 22 flags S/SA\n\
             pass out all flags S/SA\n",
    ),
    (
        "include_in_an_anchor",
        "\
             anchor \"a\" {\n\
             \tinclude \"rules\"\n\
             }\n",
        "\
             anchor \"a\" all {\n\
             \x20 pass in proto tcp from any to any port = 22 flags S/SA\n\
             }\n",
    ),
    (
        "lines_are_joined",
        "\
             pass in \\\n\
             \tproto tcp \\\n\
             \tto port 22\n\
             # a comment \\\n\
             that goes on\n\
             block\n",
        "\
             pass in proto tcp from any to any port = 22 flags S/SA\n\
             block drop all\n",
    ),
    (
        "comments",
        "\
             # first\n\
             \n\
             pass in # behind\n\
             block # \"unclosed { quote\n",
        "\
             pass in all flags S/SA\n\
             block drop all\n",
    ),
    (
        "no_newline_at_the_end",
        "pass in",
        "pass in all flags S/SA\n",
    ),
    (
        "quotes",
        "\
             pass in on 'em0' label 'its' \n\
             pass tag \"A\" label \"a \\\"quoted\\\" b\"\n",
        "\
             pass in on em0 all flags S/SA label \"its\"\n\
             pass all flags S/SA label \"a \"quoted\" b\" tag A\n",
    ),
    (
        "load_anchor",
        "\
             anchor \"deep\"\n\
             load anchor \"deep\" from \"rules\"\n\
             block\n",
        "\
             anchor \"deep\" all\n\
             block drop all\n\
             pass in proto tcp from any to any port = 22 flags S/SA\n",
    ),
    (
        "load_anchor_in_a_loaded_file",
        "\
             anchor \"outer\"\n\
             load anchor \"outer\" from \"loads\"\n",
        "\
             anchor \"outer\" all\n\
             pass all flags S/SA\n\
             anchor \"inner\" all\n\
             pass in proto tcp from any to any port = 22 flags S/SA\n",
    ),
    (
        "quotes_over_lines",
        "\
             pass label \"one\n\
             two\"\n\
             pass label \"one\\\n\
             two\"\n",
        "\
             pass all flags S/SA label \"onetwo\"\n\
             pass all flags S/SA label \"onetwo\"\n",
    ),
    (
        "escapes_in_quotes",
        "\
             pass label 'it\\'s' tag \"a\\ b\"\n\
             pass label \"a\\b\\\\c\"\n",
        "\
             pass all flags S/SA label \"it's\" tag a b\n\
             pass all flags S/SA label \"a\\b\\\\c\"\n",
    ),
];
