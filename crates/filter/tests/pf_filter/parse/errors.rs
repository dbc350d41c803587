//! Errors and warnings: where they stand, and of which kind they are.

use super::{findings, read};

#[test]
fn each_error_is_found_at_its_place() {
    for (name, text, wanted) in CASES {
        let parsed = read(text);
        let messages: Vec<_> = parsed
            .diagnostics
            .iter()
            .map(|found| &found.message)
            .collect();
        assert_eq!(findings(&parsed), *wanted, "{name}: {messages:?}");
    }
}

/// Name, configuration, `FILE:LINE:COLUMN CODE` of each finding.
const CASES: &[(&str, &str, &[&str])] = &[
    ("no_statement", "pas in\n", &["pf.conf:1:1 syntax"]),
    ("number_as_statement", "12 in\n", &["pf.conf:1:1 syntax"]),
    (
        "keyword_as_statement",
        "\
             pass\n\
             from any\n",
        &["pf.conf:2:1 syntax"],
    ),
    (
        "two_statements_in_a_line",
        "pass in block\n",
        &["pf.conf:1:9 syntax"],
    ),
    (
        "unclosed_list",
        "pass from { 10.1.0.1\n",
        &["pf.conf:1:11 syntax"],
    ),
    (
        "empty_list",
        "pass from { } to any\n",
        &["pf.conf:1:11 syntax"],
    ),
    (
        "double_comma",
        "pass proto { tcp,, udp }\n",
        &["pf.conf:1:18 syntax"],
    ),
    (
        "trailing_comma",
        "pass proto { tcp, }\n",
        &["pf.conf:1:19 syntax"],
    ),
    (
        "line_ends_behind_a_comma",
        "\
             pass proto { tcp,\n\
             udp }\n",
        &["pf.conf:1:17 syntax"],
    ),
    (
        "unclosed_anchor",
        "\
             anchor \"a\" {\n\
             \tpass\n",
        &["pf.conf:1:12 syntax"],
    ),
    (
        "stray_brace",
        "\
             pass\n\
             }\n\
             blok\n",
        &["pf.conf:2:1 syntax", "pf.conf:3:1 syntax"],
    ),
    (
        "reserved_word_as_a_name",
        "pass on pass\n",
        &["pf.conf:1:9 syntax"],
    ),
    (
        "missing_mask_of_flags",
        "pass proto tcp flags S\n",
        &["pf.conf:1:22 syntax"],
    ),
    (
        "old_translation",
        "\
             nat on em0 from any to any -> em0\n\
             rdr pass on em0 -> lo0\n",
        &["pf.conf:1:1 syntax", "pf.conf:2:1 syntax"],
    ),
    (
        "carriage_returns",
        "\
             pass in\r\n\
             block out\r\n",
        &["pf.conf:1:8 syntax", "pf.conf:2:10 syntax"],
    ),
    (
        "foreign_characters",
        "\
             pass in\n\
             bl\u{f6}ck\n\
             pass on \u{201c}em0\u{201d}\n",
        &[
            "pf.conf:2:1 syntax",
            "pf.conf:2:3 syntax",
            "pf.conf:3:9 syntax",
        ],
    ),
    (
        "byte_order_mark",
        "\
             \u{feff}pass in\n\
             block\n",
        &["pf.conf:1:1 syntax"],
    ),
    (
        "unclosed_quote",
        "pass label \"open\n",
        &["pf.conf:1:12 unclosed-quote"],
    ),
    (
        "unclosed_quote_over_lines",
        "\
             pass\n\
             block label \"open\n\
             over lines\n",
        &["pf.conf:2:13 unclosed-quote"],
    ),
    ("backslash_at_the_end", "pass in \\", &[]),
    (
        "dollar_alone",
        "pass on $ in\n",
        &["pf.conf:1:9 undefined-macro"],
    ),
    (
        "option_after_bang",
        "pass ! label x\n",
        &["pf.conf:1:8 syntax"],
    ),
    ("set_of_no_option", "set pass\n", &["pf.conf:1:5 syntax"]),
    ("set_of_unknown", "set foo bar\n", &["pf.conf:1:5 syntax"]),
    (
        "undefined_macro",
        "\
             ext_if = em0\n\
             pass on $ext_fi\n\
             block\n",
        &["pf.conf:2:9 undefined-macro"],
    ),
    (
        "macro_in_an_anchor",
        "\
             anchor a {\n\
             \tx = 1\n\
             \tpass\n\
             }\n",
        &["pf.conf:2:2 syntax"],
    ),
    (
        "macro_name_with_blanks",
        "\"a b\" = c\n",
        &["pf.conf:1:1 macro-name"],
    ),
    (
        "macro_without_value",
        "\
             a =\n\
             pass\n",
        &["pf.conf:1:4 syntax"],
    ),
    (
        "error_in_a_macro",
        "\
             ports = \"22 sssh\"\n\
             pass proto tcp to port { $ports }\n",
        &["pf.conf:2:26 unknown-port"],
    ),
    (
        "macros_are_not_nested",
        "\
             a = em0\n\
             b = \"$a\"\n\
             pass on $b\n",
        &["pf.conf:3:9 syntax"],
    ),
    (
        "unknown_host",
        "\
             pass from nowhere.example.org\n\
             pass from em9\n\
             pass from 300.1.2.3\n\
             pass from 10.1\n",
        &[
            "pf.conf:1:11 unknown-host",
            "pf.conf:2:11 unknown-host",
            "pf.conf:3:11 unknown-host",
            "pf.conf:4:11 unknown-host",
        ],
    ),
    (
        "unknown_port",
        "pass proto tcp to port sssh\n",
        &["pf.conf:1:24 unknown-port"],
    ),
    (
        "unknown_protocol",
        "pass proto tpc\n",
        &["pf.conf:1:12 unknown-protocol"],
    ),
    (
        "unknown_id",
        "\
             pass proto tcp user nobody_here\n\
             pass proto tcp group no_group\n",
        &["pf.conf:1:21 unknown-id", "pf.conf:2:22 unknown-id"],
    ),
    (
        "unknown_icmp_type",
        "pass inet proto icmp icmp-type echorec\n",
        &["pf.conf:1:32 unknown-icmp-type"],
    ),
    (
        "unknown_icmp_code",
        "\
             pass inet proto icmp icmp-type unreach code portunr\n\
             block return-icmp(nowhere)\n",
        &[
            "pf.conf:1:45 unknown-icmp-code",
            "pf.conf:2:19 unknown-icmp-code",
        ],
    ),
    (
        "unknown_tos",
        "pass tos lowdely\n",
        &["pf.conf:1:10 unknown-tos"],
    ),
    (
        "unknown_rtable",
        "pass rtable 9\n",
        &["pf.conf:1:13 unknown-rtable"],
    ),
    (
        "unknown_queue",
        "\
             queue q on em0 bandwidth 1M default\n\
             pass set queue q\n\
             pass set queue nothing\n",
        &["pf.conf:2:16 unknown-queue", "pf.conf:3:16 unknown-queue"],
    ),
    (
        "unknown_timeout",
        "\
             set timeout tcp.frist 3\n\
             pass keep state (tcp.second 4)\n",
        &[
            "pf.conf:1:13 unknown-timeout",
            "pf.conf:2:18 unknown-timeout",
        ],
    ),
    (
        "unknown_option",
        "\
             set limit statess 5\n\
             set optimization fast\n\
             set debug loud\n\
             set ruleset-optimization some\n\
             set syncookies maybe\n\
             table <t> constant\n",
        &[
            "pf.conf:1:11 unknown-option",
            "pf.conf:2:18 unknown-option",
            "pf.conf:3:11 unknown-option",
            "pf.conf:4:26 unknown-option",
            "pf.conf:5:16 unknown-option",
            "pf.conf:6:11 unknown-option",
        ],
    ),
    (
        "log_interface",
        "pass log (to em0)\n",
        &["pf.conf:1:14 log-interface"],
    ),
    (
        "interface_name",
        "pass from (10.1.0.1) to any\n",
        &["pf.conf:1:12 interface-name"],
    ),
    (
        "interface_modifier",
        "\
             pass from (em0:nework)\n\
             pass from (em0:peer:network)\n",
        &[
            "pf.conf:1:12 interface-modifier",
            "pf.conf:2:12 interface-modifier",
        ],
    ),
    (
        "range",
        "\
             pass proto 256\n\
             pass proto 0\n\
             pass tos 256\n\
             pass prio 8\n\
             pass rtable 256\n\
             pass probability 2\n\
             pass probability x\n\
             pass proto tcp to port 65536\n\
             pass inet proto icmp icmp-type 256\n\
             block return-rst(ttl 256) proto tcp\n\
             set hostid 0\n\
             pass set delay 65536\n\
             pass scrub (min-ttl 256)\n\
             pass keep state (max-src-states 0)\n\
             pass keep state (max-src-conn-rate 0/5)\n\
             pass keep state (max 4294967296)\n\
             set limit states 4294967296\n\
             set syncookies adaptive (start 200%)\n\
             pass divert-packet port 0\n",
        &[
            "pf.conf:1:12 range",
            "pf.conf:2:12 range",
            "pf.conf:3:10 range",
            "pf.conf:4:11 range",
            "pf.conf:5:13 range",
            "pf.conf:6:18 range",
            "pf.conf:7:18 range",
            "pf.conf:8:24 range",
            "pf.conf:9:32 range",
            "pf.conf:10:22 range",
            "pf.conf:11:12 range",
            "pf.conf:12:16 range",
            "pf.conf:13:21 range",
            "pf.conf:14:18 range",
            "pf.conf:15:18 range",
            "pf.conf:16:22 range",
            "pf.conf:17:18 range",
            "pf.conf:18:32 range",
            "pf.conf:19:25 range",
        ],
    ),
    (
        "number",
        "pass tag 99999999999999999999\n",
        &["pf.conf:1:10 number"],
    ),
    (
        "port_range",
        "\
             pass proto tcp to port 90:80\n\
             pass proto tcp to port 10 >< 10\n\
             pass proto tcp to port != 1:2\n\
             pass in inet proto tcp to port 80 rdr-to 10.1.0.1 port 9:8\n",
        &[
            "pf.conf:1:24 port-range",
            "pf.conf:2:24 port-range",
            "pf.conf:3:24 port-range",
            "pf.conf:4:42 port-range",
        ],
    ),
    (
        "address_range",
        "\
             pass from 10.1.0.1 - 2001:db8::1\n\
             pass from em0 - 10.1.0.1\n",
        &["pf.conf:1:11 address-range", "pf.conf:2:11 address-range"],
    ),
    (
        "prefix",
        "\
             pass from 10.1.0.1/33\n\
             pass from 2001:db8::/129\n\
             table <t> { 10.0.0.0/64 }\n",
        &[
            "pf.conf:1:11 prefix",
            "pf.conf:2:11 prefix",
            "pf.conf:3:13 prefix",
        ],
    ),
    (
        "too_long",
        "\
             pass label xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\
             pass tag xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\
             pass tagged xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\
             pass from <xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx>\n\
             table <xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx>\n\
             pass on interface_name_1\n\
             pass from route xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\
             queue xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx on em0 bandwidth 1M\n",
        &[
            "pf.conf:1:12 too-long",
            "pf.conf:2:10 too-long",
            "pf.conf:3:13 too-long",
            "pf.conf:4:12 too-long",
            "pf.conf:5:8 too-long",
            "pf.conf:6:9 too-long",
            "pf.conf:7:17 too-long",
            "pf.conf:8:7 too-long",
        ],
    ),
    (
        "label_too_long_when_filled_in",
        "pass from 2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff to 2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff label \"$srcaddr $dstaddr\"\n",
        &["pf.conf:1:1 too-long"],
    ),
    (
        "given_twice",
        "\
             pass proto tcp flags S/SA flags S/SA\n\
             pass label a label b\n\
             pass tos 1 tos 2\n\
             pass prio 1 prio 2\n\
             pass keep state no state\n\
             pass max-pkt-rate 1/1 max-pkt-rate 1/1\n\
             pass set (prio 1, prio 2)\n\
             pass scrub (no-df, no-df)\n\
             pass keep state (max 1, max 2)\n\
             pass out nat-to em1 nat-to em1\n\
             pass in divert-reply divert-reply\n\
             set state-defaults max 5\n\
             set state-defaults max 6\n\
             pass received-on em0 received-on em1\n\
             pass in inet route-to 10.1.0.1 route-to 10.1.0.2\n",
        &[
            "pf.conf:1:27 given-twice",
            "pf.conf:2:14 given-twice",
            "pf.conf:3:12 given-twice",
            "pf.conf:4:13 given-twice",
            "pf.conf:5:17 given-twice",
            "pf.conf:6:23 given-twice",
            "pf.conf:7:19 given-twice",
            "pf.conf:8:20 given-twice",
            "pf.conf:9:25 given-twice",
            "pf.conf:10:21 given-twice",
            "pf.conf:11:22 given-twice",
            "pf.conf:13:5 given-twice",
            "pf.conf:14:22 given-twice",
            "pf.conf:15:32 given-twice",
        ],
    ),
    (
        "needs_port_protocol",
        "\
             pass from any port 22\n\
             pass proto icmp to port 22\n\
             pass user root\n\
             pass proto esp group 1\n",
        &[
            "pf.conf:1:20 needs-port-protocol",
            "pf.conf:2:25 needs-port-protocol",
            "pf.conf:3:11 needs-port-protocol",
            "pf.conf:4:22 needs-port-protocol",
        ],
    ),
    (
        "needs_tcp",
        "\
             pass proto udp flags S/SA\n\
             block return-rst proto udp\n\
             block return-rst\n\
             pass from any os Linux\n\
             pass proto { udp icmp } from any os Linux\n",
        &[
            "pf.conf:1:16 needs-tcp",
            "pf.conf:2:1 needs-tcp",
            "pf.conf:3:1 needs-tcp",
            "pf.conf:4:18 needs-tcp",
            "pf.conf:5:37 needs-tcp",
        ],
    ),
    (
        "icmp_family",
        "\
             pass proto icmp icmp-type echoreq\n\
             pass inet6 proto icmp\n\
             pass inet proto icmp6\n",
        &[
            "pf.conf:1:27 icmp-family",
            "pf.conf:2:18 icmp-family",
            "pf.conf:3:17 icmp-family",
        ],
    ),
    (
        "icmp_type",
        "\
             pass inet proto icmp icmp6-type echoreq\n\
             pass inet proto { icmp, tcp } icmp-type echoreq\n",
        &["pf.conf:1:33 icmp-type", "pf.conf:2:41 icmp-type"],
    ),
    (
        "needs_pass",
        "\
             block keep state\n\
             block allow-opts\n\
             match allow-opts\n\
             match in divert-packet port 9\n\
             block in inet route-to 10.1.0.2\n\
             match in inet route-to 10.1.0.2\n\
             match in inet6 af-to inet from 192.0.2.2\n",
        &[
            "pf.conf:1:7 needs-pass",
            "pf.conf:2:7 needs-pass",
            "pf.conf:3:7 needs-pass",
            "pf.conf:4:10 needs-pass",
            "pf.conf:5:24 needs-pass",
            "pf.conf:6:24 needs-pass",
            "pf.conf:7:16 needs-pass",
        ],
    ),
    (
        "fragment",
        "\
             block proto tcp from any port 1 fragment\n\
             pass proto tcp flags S/SA fragment\n\
             pass inet proto icmp icmp-type 8 fragment\n",
        &[
            "pf.conf:1:1 fragment",
            "pf.conf:2:1 fragment",
            "pf.conf:3:1 fragment",
        ],
    ),
    (
        "flags",
        "\
             pass proto tcp flags SA/S\n\
             pass proto tcp flags X/SA\n",
        &["pf.conf:1:16 flags", "pf.conf:2:22 flags"],
    ),
    (
        "needs_state",
        "\
             pass out nat-to (em0) no state\n\
             block in rdr-to 10.1.0.1\n\
             pass in inet route-to 10.1.0.2 no state\n",
        &[
            "pf.conf:1:17 needs-state",
            "pf.conf:2:17 needs-state",
            "pf.conf:3:23 needs-state",
        ],
    ),
    (
        "needs_direction",
        "\
             pass nat-to (em0)\n\
             pass inet route-to 10.1.0.2\n\
             pass rdr-to 10.1.0.1\n",
        &[
            "pf.conf:1:13 needs-direction",
            "pf.conf:2:20 needs-direction",
            "pf.conf:3:13 needs-direction",
        ],
    ),
    (
        "af_to",
        "\
             pass inet6 af-to inet from 192.0.2.2\n\
             pass in inet af-to inet from 192.0.2.2\n\
             pass in inet6 af-to inet from 192.0.2.2 route-to 10.1.0.2\n",
        &[
            "pf.conf:1:12 af-to",
            "pf.conf:2:14 af-to",
            "pf.conf:3:50 af-to",
        ],
    ),
    (
        "scrub",
        "match inet6 scrub (no-df)\n",
        &["pf.conf:1:13 scrub"],
    ),
    (
        "source_track",
        "pass keep state (source-track global, max-src-nodes 3)\n",
        &["pf.conf:1:39 source-track"],
    ),
    (
        "overload",
        "pass keep state (overload <t>)\n",
        &["pf.conf:1:6 overload"],
    ),
    (
        "state",
        "\
             pass modulate state (sloppy)\n\
             pass in proto tcp synproxy state (sloppy)\n",
        &["pf.conf:1:6 state", "pf.conf:2:19 state"],
    ),
    (
        "once",
        "\
             match once\n\
             anchor a once\n",
        &["pf.conf:1:7 once", "pf.conf:2:10 once"],
    ),
    (
        "binat",
        "\
             pass in from 10.1.0.1 binat-to 192.0.2.5\n\
             pass from any binat-to 192.0.2.5\n\
             pass from 10.1.0.1 binat-to <t>\n",
        &[
            "pf.conf:1:1 binat",
            "pf.conf:2:1 binat",
            "pf.conf:3:29 binat",
        ],
    ),
    (
        "divert",
        "\
             pass out divert-to 127.0.0.1 port 9\n\
             pass in divert-reply\n",
        &["pf.conf:1:10 divert", "pf.conf:2:9 divert"],
    ),
    (
        "family",
        "\
             pass inet from 10.1.0.1 to any nat-to 2001:db8::1\n\
             pass in inet6 divert-to 127.0.0.1 port 1\n\
             pass out nat-to www.example.org\n\
             pass in inet6 af-to inet from 2001:db8::2\n",
        &[
            "pf.conf:1:39 family",
            "pf.conf:2:15 family",
            "pf.conf:3:17 family",
            "pf.conf:4:31 family",
        ],
    ),
    (
        "pool",
        "\
             pass out inet nat-to { 10.1.0.1 10.1.0.2 } bitmask\n\
             pass out nat-to { (em0) }\n\
             pass in inet rdr-to 10.1.0.1 static-port\n\
             pass in route-to (em0)\n\
             pass out inet from any nat-to 192.0.2.2 port 5:6 static-port\n\
             pass out nat-to <t> bitmask\n",
        &[
            "pf.conf:1:22 pool",
            "pf.conf:2:19 pool",
            "pf.conf:3:21 pool",
            "pf.conf:4:18 pool",
            "pf.conf:5:31 pool",
            "pf.conf:6:17 pool",
        ],
    ),
    (
        "hash_key",
        "pass out inet nat-to 192.0.2.0/24 source-hash 0x12\n",
        &["pf.conf:1:47 hash-key"],
    ),
    (
        "no_combination",
        "\
             pass from 10.1.0.1 to 2001:db8::1\n\
             pass inet from 2001:db8::1\n\
             pass on em1 from fe80::1%em0\n",
        &[
            "pf.conf:1:1 no-combination",
            "pf.conf:2:1 no-combination",
            "pf.conf:3:1 no-combination",
        ],
    ),
    (
        "urpf_failed",
        "\
             block in from urpf-failed\n\
             block in to urpf-failed\n",
        &["pf.conf:2:13 urpf-failed"],
    ),
    (
        "anchor",
        "\
             anchor a keep state\n\
             anchor b in inet route-to 10.1.0.2\n",
        &["pf.conf:1:10 anchor", "pf.conf:2:27 anchor"],
    ),
    (
        "anchor_name",
        "\
             anchor\n\
             anchor \"_own\"\n\
             anchor \"a/_b\"\n\
             anchor \"a/\"\n\
             anchor \"\"\n\
             anchor \"a/b\" {\n\
             \tpass\n\
             }\n\
             anchor one {\n\
             \tpass\n\
             }\n\
             anchor one {\n\
             \tblock\n\
             }\n",
        &[
            "pf.conf:1:1 anchor-name",
            "pf.conf:2:8 anchor-name",
            "pf.conf:3:8 anchor-name",
            "pf.conf:4:8 anchor-name",
            "pf.conf:5:8 anchor-name",
            "pf.conf:6:8 anchor-name",
            "pf.conf:12:8 anchor-name",
        ],
    ),
    (
        "rules_behind_the_brace",
        "\
             anchor a { pass\n\
             }\n",
        &["pf.conf:1:10 syntax"],
    ),
    (
        "brace_behind_a_rule",
        "\
             anchor a {\n\
             \tpass }\n",
        &["pf.conf:2:7 syntax"],
    ),
    (
        "statements_that_anchors_cannot_hold",
        "\
             anchor a {\n\
             \tset skip on lo0\n\
             \tload anchor x from \"rules\"\n\
             \tantispoof for em0\n\
             \tqueue q on em0 bandwidth 1M\n\
             \tpass\n\
             }\n",
        &[
            "pf.conf:2:2 syntax",
            "pf.conf:3:2 syntax",
            "pf.conf:4:2 syntax",
            "pf.conf:5:2 syntax",
        ],
    ),
    (
        "antispoof_of_a_domain",
        "antispoof for rdomain 1\n",
        &["pf.conf:1:15 antispoof"],
    ),
    (
        "table_entry",
        "\
             table <a> { <b> }\n\
             table <c> { (em0) }\n\
             table <d> { no-route }\n\
             table <e> { 10.1.0.1 - 10.1.0.9 }\n\
             table <f> { any }\n",
        &[
            "pf.conf:1:13 table-entry",
            "pf.conf:2:13 table-entry",
            "pf.conf:3:13 table-entry",
            "pf.conf:4:13 table-entry",
            "pf.conf:5:13 syntax",
        ],
    ),
    (
        "undefined_table",
        "\
             table <blocked> persist\n\
             block from <bloked>\n",
        &["pf.conf:2:1 undefined-table"],
    ),
    (
        "table_defined_twice",
        "\
             table <t> persist\n\
             table <t> { 10.1.0.1 }\n",
        &["pf.conf:2:1 table-defined-twice"],
    ),
    (
        "weights",
        "\
             table <a> { 10.1.0.1 weight 0 }\n\
             table <b> { 10.1.0.1 weight 65536 }\n",
        &["pf.conf:1:29 range", "pf.conf:2:29 range"],
    ),
    (
        "table_files",
        "\
             table <a> file \"badtable\"\n\
             table <b> file \"longtable\"\n\
             table <c> file \"weightless\"\n\
             table <d> file \"heavy\"\n\
             table <e> file \"missing\"\n",
        &[
            "pf.conf:5:16 unreadable",
            "badtable:2:1 unknown-host",
            "longtable:2:1 too-long",
            "weightless:2:1 syntax",
            "heavy:1:17 range",
        ],
    ),
    (
        "skip",
        "\
             set skip on ! lo0\n\
             set skip on rdomain 1\n",
        &["pf.conf:1:13 skip", "pf.conf:2:13 skip"],
    ),
    (
        "syncookies",
        "\
             set syncookies always (start 5%, end 1%)\n\
             set syncookies adaptive (start 5%, end 9%)\n",
        &["pf.conf:1:16 syncookies", "pf.conf:2:16 syncookies"],
    ),
    (
        "queue",
        "\
             queue q bandwidth 1M\n\
             queue r on em0 default\n\
             queue s on em9 bandwidth 1M default\n\
             queue t parent nothing bandwidth 1M\n\
             queue u on em1 bandwidth 1M default\n\
             queue v on em1 bandwidth 1M default\n",
        &[
            "pf.conf:1:1 queue",
            "pf.conf:2:1 queue",
            "pf.conf:3:12 queue",
            "pf.conf:4:1 queue",
            "pf.conf:6:1 queue",
        ],
    ),
    (
        "queue_bandwidth",
        "\
             queue a on em0 bandwidth 1M\n\
             queue b parent a flows 5 default\n",
        &["pf.conf:2:1 queue-bandwidth"],
    ),
    (
        "queue_default",
        "\
             queue a on em0 bandwidth 1M\n\
             queue b parent a bandwidth 1M\n",
        &["pf.conf:1:1 queue-default"],
    ),
    (
        "queue_leaf",
        "\
             queue a on em0 bandwidth 1M\n\
             queue b parent a bandwidth 1M default\n\
             queue c parent b bandwidth 1K\n\
             pass set queue b\n",
        &["pf.conf:2:1 queue-leaf", "pf.conf:4:1 queue-leaf"],
    ),
    (
        "bandwidths",
        "\
             queue a on em0 bandwidth 5%\n\
             queue b on em0 bandwidth 5X\n\
             queue c on em0 bandwidth 1M burst 2M for 5s\n",
        &[
            "pf.conf:1:26 range",
            "pf.conf:2:26 range",
            "pf.conf:3:42 range",
        ],
    ),
    (
        "include_is_missing",
        "\
             include \"missing\"\n\
             pass\n",
        &["pf.conf:1:9 unreadable"],
    ),
    (
        "endless_include",
        "include \"endless\"\n",
        &["endless:2:9 include-depth"],
    ),
    (
        "include_of_itself",
        "\
             pass\n\
             include \"pf.conf\"\n",
        &["pf.conf:2:9 include-depth"],
    ),
    (
        "errors_in_an_included_file",
        "\
             include \"bad\"\n\
             pass\n",
        &["bad:2:1 syntax"],
    ),
    (
        "unclosed_quote_in_an_included_file",
        "\
             include \"open\"\n\
             blok\n",
        &["pf.conf:2:1 syntax", "open:1:12 unclosed-quote"],
    ),
    (
        "binary_include",
        "\
             include \"bytes\"\n\
             pass\n",
        &["pf.conf:1:9 binary"],
    ),
    (
        "load_is_missing",
        "load anchor a from \"missing\"\n",
        &["pf.conf:1:1 unreadable"],
    ),
    (
        "load_with_errors",
        "load anchor a from \"bad\"\n",
        &["bad:2:1 syntax"],
    ),
    (
        "all_errors_are_found",
        "\
             pass proto tpc\n\
             blok in\n\
             pass from 10.1.0.1/33 to any\n\
             pass in\n\
             pass label\n\
             set limit\n",
        &[
            "pf.conf:1:12 unknown-protocol",
            "pf.conf:2:1 syntax",
            "pf.conf:3:11 prefix",
            "pf.conf:5:11 syntax",
            "pf.conf:6:10 syntax",
        ],
    ),
    (
        "errors_inside_an_anchor",
        "\
             anchor \"a\" on em0 {\n\
             \tpass proto tpc\n\
             \tblock from 300.0.0.1\n\
             \tpass\n\
             }\n\
             pass tos nothing\n",
        &[
            "pf.conf:2:13 unknown-protocol",
            "pf.conf:3:13 unknown-host",
            "pf.conf:6:10 unknown-tos",
        ],
    ),
    (
        "error_in_a_list_over_lines",
        "\
             pass proto tcp from {\n\
             \t10.1.0.1\n\
             \t10.1.0.300\n\
             \t10.1.0.2\n\
             } to any\n\
             pass tos nothing\n",
        &["pf.conf:3:2 unknown-host", "pf.conf:6:10 unknown-tos"],
    ),
    (
        "error_in_a_table_over_lines",
        "\
             table <t> {\n\
             \t10.1.0.1\n\
             \t10.1.0.1/99\n\
             \t10.1.0.2\n\
             }\n\
             pass from <t> tos nothing\n",
        &["pf.conf:3:2 prefix", "pf.conf:6:19 unknown-tos"],
    ),
    (
        "error_in_a_nested_anchor",
        "\
             anchor a {\n\
             \tanchor b {\n\
             \t\tpass proto tpc\n\
             \t}\n\
             \tpass tos nothing\n\
             }\n\
             blok\n",
        &[
            "pf.conf:3:14 unknown-protocol",
            "pf.conf:5:11 unknown-tos",
            "pf.conf:7:1 syntax",
        ],
    ),
    (
        "unclosed_list_before_a_rule",
        "\
             pass from { 10.1.0.1,\n\
             block in\n\
             pass tos nothing\n",
        &["pf.conf:1:21 syntax", "pf.conf:3:10 unknown-tos"],
    ),
    (
        "negated_list",
        "\
             pass from { !10.1.0.1, 10.1.0.2 }\n\
             block from { !10.1.0.1 !10.1.0.2 }\n\
             block from { !10.1.0.1 }\n",
        &["pf.conf:1:11 negated-list", "pf.conf:2:12 negated-list"],
    ),
    ("binary", "\u{7f}ELF\0\x01\x02", &["pf.conf:1:1 binary"]),
];
