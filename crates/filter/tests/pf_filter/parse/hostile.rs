//! Input that nobody wrote by hand: it ends in errors, soon, and never in a panic.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use pf_filter::host::Host;
use pf_filter::parse::{BRACE_DEPTH_MAX, ERRORS_MAX, Parsed, RULES_MAX};
use pf_filter::print;
use pf_filter::rule::Anchor;

use super::{files, findings, known_host, read, read_with};
use crate::support::cases;

/// As [`read`], in seconds: linear work takes milliseconds, without optimization too.
fn read_soon(text: impl AsRef<[u8]>) -> Parsed {
    let scale = std::env::var("WEIR_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok());
    let limit = Duration::from_secs(60 * scale.unwrap_or(1));
    let before = spent();
    let parsed = read(text);
    let took = spent().saturating_sub(before);
    assert!(took < limit, "{took:?}");
    parsed
}

/// Time that this thread ran, where Linux tells it: other work on the machine does not count.
fn spent() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let ran = fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|line| line.split(' ').next()?.parse().ok());
    ran.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn codes(parsed: &Parsed) -> Vec<&'static str> {
    let mut codes: Vec<_> = parsed.diagnostics.iter().map(|found| found.code).collect();
    codes.dedup();
    codes
}

#[test]
fn macros_that_double_each_other_end() {
    let mut text = String::from("m0 = \"10.1.0.1 10.1.0.2\"\n");
    for number in 1..60 {
        text += &format!("m{number} = $m{} $m{}\n", number - 1, number - 1);
    }
    text += "pass from { $m59 } to any\n";
    let parsed = read_soon(text);
    assert_eq!(codes(&parsed)[0], "too-long");
    assert!(parsed.diagnostics.len() < 200);
}

#[test]
fn a_big_macro_cannot_be_used_for_ever() {
    let mut text = format!("m = \"{}\"\n", "x".repeat(8000));
    text += "pass tag $m\n".repeat(900).as_str();
    text += "pass tag x\n";
    assert_eq!(codes(&read_soon(text)), ["too-long"]);
    let long = format!("m = {}\n", "\"xxxxxxxx xxxxxxxx\" ".repeat(300_000));
    assert_eq!(findings(&read_soon(long)), ["pf.conf:1:1 too-long"]);
}

#[test]
fn lists_of_ten_dimensions_are_counted_before_they_are_expanded() {
    let ten = |what: &str| {
        (1..=10)
            .map(|number| format!("{what}{number} "))
            .collect::<String>()
    };
    let text = format!(
        "pass inet proto {{ tcp udp }} from {{ {0} }} port {{ {1} }} to {{ {0} }} port {{ {1} }} user {{ {1} }} group {{ {1} }}\n\
         pass\n",
        ten("10.1.0."),
        ten("")
    );
    let parsed = read_soon(text);
    assert_eq!(findings(&parsed), ["pf.conf:1:1 too-many-rules"]);
    assert_eq!(parsed.ruleset.rules.len(), 1);
}

#[test]
fn rules_are_counted_over_all_statements() {
    let hosts = |count: usize| {
        (0..count)
            .map(|host| format!("10.1.{}.{} ", host / 250, host % 250))
            .collect::<String>()
    };
    // Of the wrong family: counted, and given up soon.
    let text = format!(
        "pass inet6 from {{ {} }} to {{ {} }}\n",
        hosts(600),
        hosts(1000)
    )
    .repeat(2);
    assert_eq!(
        findings(&read_soon(text)),
        ["pf.conf:1:1 no-combination", "pf.conf:2:1 too-many-rules"]
    );
    assert_eq!(RULES_MAX, 1_000_000);
}

#[test]
fn pools_of_each_rule_are_counted() {
    let addresses: String = (0..250).map(|host| format!("10.1.0.{host} ")).collect();
    let ports: String = (1..=5000).map(|port| format!("{port} ")).collect();
    let text = format!("pass in proto tcp to any port {{ {ports} }} rdr-to {{ {addresses} }}\n");
    assert_eq!(codes(&read_soon(text)), ["too-many-rules"]);
}

#[test]
fn braces_nest_to_a_limit() {
    let depth = BRACE_DEPTH_MAX - 1;
    let list = |depth: usize| {
        format!(
            "pass from {}10.1.0.1{} to any\npass\n",
            "{ ".repeat(depth),
            " }".repeat(depth)
        )
    };
    assert!(!read(list(depth)).has_errors());
    assert_eq!(codes(&read_soon(list(BRACE_DEPTH_MAX + 1))), ["too-deep"]);
    assert_eq!(codes(&read_soon(list(100_000))), ["too-deep"]);
    let table = format!(
        "table <t> {{ {}10.1.0.1{} }}\n",
        "{ ".repeat(80),
        " }".repeat(80)
    );
    assert_eq!(codes(&read_soon(table)), ["too-deep"]);
    read_soon("pass from ".to_owned() + &"{".repeat(50_000));
    read_soon("pass from ".to_owned() + &"{ any }".repeat(50_000));
}

#[test]
fn anchors_nest_to_a_limit() {
    let anchors = |depth: usize| {
        format!(
            "{}pass\n{}pass\n",
            "anchor {\n".repeat(depth),
            "}\n".repeat(depth)
        )
    };
    let parsed = read(anchors(BRACE_DEPTH_MAX - 1));
    assert!(!parsed.has_errors());
    let mut depth = 0;
    let mut rules = &parsed.ruleset.rules;
    while let Some(Anchor::Inline { rules: inner, .. }) = rules[0].anchor.as_deref() {
        (rules, depth) = (inner, depth + 1);
    }
    assert_eq!(depth, BRACE_DEPTH_MAX - 1);
    let parsed = read_soon(anchors(BRACE_DEPTH_MAX));
    assert_eq!(findings(&parsed), ["pf.conf:64:8 too-deep"]);
    assert_eq!(codes(&read_soon(anchors(2000))), ["too-deep"]);
}

#[test]
fn files_that_include_each_other_end() {
    let (host, mut files) = (known_host(), files());
    files.add("a", "include \"b\"\n".repeat(3));
    files.add("b", "include \"a\"\n".repeat(3));
    let parsed = read_with(&host, &mut files, "include \"a\"\n");
    assert!(
        codes(&parsed).contains(&"include-depth"),
        "{:?}",
        codes(&parsed)
    );
    for number in 0..14 {
        files.add(
            format!("f{number}"),
            format!("include \"f{}\"\n", number + 1).repeat(10),
        );
    }
    files.add("f14", "pass\n");
    let parsed = read_with(&host, &mut files, "include \"f0\"\n");
    assert_eq!(codes(&parsed)[0], "unreadable");
}

#[test]
fn anchors_that_load_themselves_end() {
    let (host, mut files) = (known_host(), files());
    files.add("loop", "load anchor again from \"loop\"\npass\n");
    let parsed = read_with(&host, &mut files, "load anchor first from \"loop\"\n");
    assert_eq!(codes(&parsed), ["too-long"]);
    let paths: Vec<_> = parsed
        .ruleset
        .loaded
        .iter()
        .take(3)
        .map(|anchor| &*anchor.path)
        .collect();
    assert_eq!(paths, ["first", "first/again", "first/again/again"]);
}

#[test]
fn tokens_have_a_length() {
    for (length, wanted) in [(8093, ""), (8094, "too-long"), (100_000, "too-long")] {
        for text in [
            format!("{} = 1\n", "x".repeat(length)),
            format!("x = \"{}\"\n", "y".repeat(length + 1)),
        ] {
            assert_eq!(codes(&read_soon(text)).concat(), wanted, "{length}");
        }
    }
    assert_eq!(
        codes(&read_soon(format!("pass tag {}\n", "7".repeat(9000)))),
        ["too-long"]
    );
    assert_eq!(
        codes(&read_soon(format!(
            "pass label \"{}\"\n",
            "\u{e9}".repeat(8000)
        ))),
        ["too-long"]
    );
    assert_eq!(
        codes(&read_soon(format!("pass {}\n", "\u{e9}".repeat(8000)))),
        ["syntax"]
    );
    let long = "x".repeat(200_000);
    assert_eq!(
        codes(&read_soon(format!("pass on ${long}\n"))),
        ["undefined-macro"]
    );
}

#[test]
fn long_lists_take_linear_time() {
    let addresses: String = (0..20_000)
        .map(|host| format!("10.{}.{}.1 ", host / 250, host % 250))
        .collect();
    assert!(!read_soon(format!("table <t> {{ {addresses} }}\n")).has_errors());
    assert!(
        !read_soon(format!(
            "table <t> {{ {0} {0} }}\n",
            "10.1.0.1 ".repeat(10_000)
        ))
        .has_errors()
    );
    assert!(
        !read_soon("pass out proto tcp user 1\n".replace("user 1", &"user 1 ".repeat(30_000)))
            .has_errors()
    );
    assert!(read_soon(format!("pass tag {}\n", "a ".repeat(50_000))).has_errors());
    let tables: String = (0..10_000)
        .map(|number| format!("table <t{number}> persist\n"))
        .collect();
    assert!(!read_soon(tables).has_errors());
    let names: String = (0..50_000).map(|number| format!("if{number} ")).collect();
    assert!(!read_soon(format!("set skip on {{ {names} }}\n")).has_errors());
    read_soon("pass from <nothing> to <nobody>\n".repeat(5000));
    let queues: String = (0..12_000)
        .map(|number| format!("queue q{number} parent r bandwidth 1M\n"))
        .collect();
    read_soon(queues);
}

#[test]
fn errors_are_counted() {
    // Each use is compared with each macro, for a suggestion.
    let count = cases(300, 3000) as usize;
    let macros: String = (0..count)
        .map(|number| format!("macro_{number} = 1\n"))
        .collect();
    let uses: String = (0..3000)
        .map(|number| format!("pass on $makro_{number}\n"))
        .collect();
    let parsed = read_soon(macros + &uses);
    assert_eq!(parsed.diagnostics.len(), ERRORS_MAX + 1);
    assert_eq!(parsed.diagnostics[ERRORS_MAX].code, "too-many");
    let last = format!("pf.conf:{}:9 too-many", count + ERRORS_MAX + 1);
    assert_eq!(findings(&parsed)[ERRORS_MAX], last);
    let parsed = read_soon("pass proto tcpp\n".repeat(5000) + "pass\n");
    assert_eq!(parsed.diagnostics.len(), ERRORS_MAX + 1);
    assert!(
        parsed.ruleset.rules.is_empty(),
        "nothing is read behind the last error"
    );
}

#[test]
fn warnings_do_not_count_as_errors() {
    let mut text: String = (0..ERRORS_MAX + 500)
        .map(|number| format!("pass from <t{number}>\n"))
        .collect();
    text.push_str("pass proto tcpp\n");
    let parsed = read_soon(&text);
    assert_eq!(
        codes(&parsed),
        ["undefined-table", "too-many", "unknown-protocol"]
    );
    assert_eq!(parsed.ruleset.rules.len(), ERRORS_MAX + 500);
    text.truncate(text.len() - "pass proto tcpp\n".len());
    assert!(!read_soon(&text).has_errors());
    // A host that nobody described gives a notice a name.
    let names: String = (0..ERRORS_MAX + 500)
        .map(|number| format!("pass from n{number}.example\n"))
        .collect();
    let parsed = read_with(&Host::default(), &mut files(), names);
    assert!(!parsed.has_errors());
    assert_eq!(parsed.diagnostics.len(), ERRORS_MAX + 1);
}

#[test]
fn odd_bytes_are_errors() {
    for text in ["\0", "pass\0", "\x7fELF\x01\0\0\0", "pass label \"\0\"\n"] {
        assert_eq!(findings(&read(text)), ["pf.conf:1:1 binary"]);
    }
    // Further on, where nobody looks for a binary file.
    let far = "#\n".repeat(5000);
    assert_eq!(
        findings(&read(far.clone() + "pass \0 in\n")),
        ["pf.conf:5001:6 syntax"]
    );
    assert_eq!(
        findings(&read(far + "pass label \"a\0b\" in\n")),
        ["pf.conf:5001:12 syntax"]
    );
    for text in [
        &b"pass \xff in\n"[..],
        b"\xc3",
        b"pass in \xed\xa0\x80\n",
        b"\xef\xbb\xbfpass\n",
    ] {
        assert_eq!(codes(&read(text)), ["syntax"], "{text:?}");
    }
    let parsed = read(b"pass label \"\xff\xfe\" # \xff\n");
    assert_eq!(
        print::canonical(&parsed.ruleset),
        "pass all flags S/SA label \"\u{fffd}\u{fffd}\"\n"
    );
}

#[test]
fn ends_in_the_middle_of_anything_are_no_panic() {
    let text = "ext = \"em0\" # c\ntable <t> const { !10.1/16, 10.2.0.0/16 weight 3 }\n\
                anchor \"a\" in on $ext {\n pass proto { tcp, udp } from any port 1 >< 5 to <t> port != 8 \\\n keep state (max 5)\n}\n\
                block return-icmp(1, 2) label 'x' ! tagged y probability 5%\n";
    for end in 0..=text.len() {
        for start in [0, end.saturating_sub(20)] {
            read(&text[start..end]);
            read(format!("{}\\", &text[start..end]));
            read(format!("{}\"", &text[start..end]));
            read(format!("{}{{", &text[start..end]));
        }
    }
}

#[test]
fn hosts_with_errors_are_refused() {
    for (text, part) in [
        ("[[interfaces]]\nname = \"\"\n", "no name of an interface"),
        (
            "[[interfaces]]\nname = \"interface_name_1\"\n",
            "no name of an interface",
        ),
        (
            "[[interfaces]]\nname = \"a\"\n[[interfaces]]\nname = \"a\"\n",
            "twice",
        ),
        (
            "[[interfaces]]\nname = \"a\"\naddresses = [\"10.1.0.1/33\"]\n",
            "at most 32 bits",
        ),
        (
            "[[interfaces]]\nname = \"a\"\naddresses = [\"10.1.0.300\"]\n",
            "no address",
        ),
        (
            "[[interfaces]]\nname = \"a\"\naddresses = [\"\"]\n",
            "no address",
        ),
        (
            "[[interfaces]]\nname = \"a\"\naddresses = [\"10.0.0.1 peer\"]\n",
            "no address",
        ),
        (
            "[[interfaces]]\nname = \"a\"\naddresses = [\"10.0.0.1 peer x\"]\n",
            "no address",
        ),
        ("[[interfaces]]\nname = \"a\"\nmtu = 5\n", "unknown field"),
        ("[names]\nx = [\"y\"]\n", "invalid"),
        ("[users]\nx = -1\n", "invalid"),
        ("[services]\nx = 65536\n", "invalid"),
        ("[protocols]\nx = 256\n", "invalid"),
        ("colour = 1\n", "unknown field"),
        ("= 1\n", "TOML parse error"),
    ] {
        let error = Host::parse(text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_host_that_is_not_known_leaves_names_open() {
    let text = "pass in on em7 from em7:network to www.example.com\npass from em7/24\npass from (em7)\nantispoof for em7\n";
    let parsed = read_with(&Host::default(), &mut files(), text);
    assert!(!parsed.has_errors());
    assert_eq!(
        print::canonical(&parsed.ruleset),
        "pass in on em7 from em7:network to www.example.com flags S/SA\n\
         pass from em7/24 to any flags S/SA\n\
         pass from (em7) to any flags S/SA\n\
         block drop in on ! em7 from em7:network to any\n\
         block drop in from em7 to any\n"
    );
    assert_eq!(
        findings(&read(text)),
        ["pf.conf:1:21 unknown-host", "pf.conf:2:11 unknown-host",]
    );
}

#[test]
fn suggestions_name_what_was_meant() {
    for (text, wanted) in [
        ("pass proto tpc\n", "did you mean `tcp`?"),
        ("blok in\n", "did you mean `block`?"),
        ("set limit statess 5\n", "did you mean `states`?"),
        ("pass proto tcp to port htp\n", "did you mean `http`?"),
        ("set timeout tcp.frist 5\n", "did you mean `tcp.first`?"),
        ("ext_if = em0\npass on $ext_fi\n", "did you mean `$ext_if`?"),
        (
            "table <allowed> persist\npass from <alowed>\n",
            "did you mean <allowed>?",
        ),
        (
            "pass in\r\n",
            "the file has the line ends of Windows: `weir filter fmt` removes them",
        ),
        (
            "\u{feff}pass in\n",
            "this is a byte order mark: save the file without it",
        ),
        (
            "pass from em0 - 10.1.0.1\n",
            "write two addresses of one family, without a prefix length",
        ),
        (
            "pass proto { tcp,\nudp }\n",
            "leave the comma out, or join the lines with `\\`",
        ),
    ] {
        let parsed = read(text);
        let help = parsed.diagnostics[0].help.as_deref();
        assert_eq!(help, Some(wanted), "{text}");
    }
}
