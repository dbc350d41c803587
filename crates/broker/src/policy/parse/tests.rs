//! Every fault by its place and its words, and the policies that are right.

use super::super::{
    BusyPoll, CharacterDevice, Diagnostic, FilterProtocol, Mode, Names, Policy, Tenant,
};
use super::Checked;
use std::path::PathBuf;

fn check(text: &str) -> Checked {
    let names = Names::new("bind:x:105:110::/:/bin/false\n", "xdp:x:120:\n");
    Policy::check(text.as_bytes(), &names)
}

fn valid(text: &str) -> Policy {
    let render = |error: &Diagnostic| error.render("policy", "");
    let result = check(text).policy;
    result.unwrap_or_else(|errors| panic!("{}", errors.iter().map(render).collect::<String>()))
}

fn only_tenant(text: &str) -> Tenant {
    valid(text).tenants.remove(0)
}

/// `LINE:COLUMN: MESSAGE` of each.
fn places(diagnostics: &[Diagnostic]) -> Vec<String> {
    let place = |it: &Diagnostic| format!("{}:{}: {}", it.line, it.column, it.message);
    diagnostics.iter().map(place).collect()
}

fn errors(text: &str) -> Vec<String> {
    places(&check(text).policy.expect_err(text))
}

fn notes(text: &str) -> Vec<String> {
    valid(text);
    places(&check(text).notes)
}

/// A device of a tenant whose other keys are right.
fn with_device(keys: &str) -> String {
    let name = if keys.contains("name =") {
        ""
    } else {
        "name = 'eth0'\n"
    };
    let queues = if keys.contains("queues =") {
        ""
    } else {
        "queues = 0\n"
    };
    let lease = if keys.contains("lease =") {
        ""
    } else {
        "lease = 'rx'\n"
    };
    format!("[[tenant]]\nname = 'a'\nuid = 1\n[[tenant.device]]\n{keys}\n{name}{queues}{lease}")
}

fn with_calls(keys: &str) -> String {
    format!("[[tenant]]\nname = 'a'\nuid = 1\n[tenant.calls]\n{keys}\n")
}

fn with_tenant(keys: &str) -> String {
    format!("[[tenant]]\nname = 'a'\n{keys}\ncalls.sysinfo = true\n")
}

/// Each text has one error, which is at the column of line 5 (a device's or a call's first key) or line
/// 3 (a tenant's) and has these words.
fn each_is_refused(embed: fn(&str) -> String, line: usize, cases: &[(&str, usize, &str)]) {
    for (keys, column, words) in cases {
        let errors = errors(&embed(keys));
        let [error] = errors.as_slice() else {
            panic!("{keys}: {errors:#?}");
        };
        let place = format!("{line}:{column}: ");
        assert!(error.starts_with(&place), "{keys}: {error}, not at {place}");
        assert!(error.contains(words), "{keys}: {error}");
    }
}

#[test]
fn everything_that_a_policy_can_say() {
    let tenant = only_tenant(
        r#"
[[tenant]]
name = "dns"
uid = [1000, "bind"]
gid = "xdp"
executable = "/usr/sbin/nsd"
sha256 = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"
cgroup = "/system.slice/nsd.service/"
container = "c1"
annotations = { "weir.dns" = "yes" }
trusted = true
leases = 8
memory-total = "1 GiB"

[[tenant.device]]
name = "eth0"
queues = "4, 0-2,3"
lease = ["rx", "tx"]
modes = ["zc", "drv"]
memory = "32MiB"
filter = [
    { protocol = "udp", destination = "192.0.2.0/24", destination-port = 53 },
    { protocol = 0x88f7 },
    { protocol = "ip", source = "2001:db8::1" },
]
busy-poll = { most-usecs = 50, most-budget = 64 }
plugin = true

[[tenant.device]]
name = "eth1"
queues = 0
lease = "rx"

[tenant.calls]
af-xdp = true
connect = [ { from = "192.0.2.1:80", to = ["127.0.0.1:8001", "127.0.0.1:8002"] } ]
mknod = ["null", "zero"]
mount = { filesystems = "tmpfs", fuse = { ext4 = "/usr/bin/fuse2fs" } }
bpf-cgroup-device = true
setxattr = true
sysinfo = true
sched-setscheduler = 10
"#,
    );
    assert_eq!(tenant.name, "dns");
    assert_eq!(tenant.who.uids, [1000, 105]);
    assert_eq!(tenant.who.gids, [120]);
    assert_eq!(tenant.who.executable, Some("/usr/sbin/nsd".into()));
    let hash = tenant.who.sha256.expect("there is one");
    assert_eq!((hash[1], hash[15], hash[31]), (0x11, 0xff, 0xff));
    let cgroup = tenant.who.cgroup.as_deref();
    assert_eq!(cgroup, Some("/system.slice/nsd.service"));
    assert_eq!(tenant.who.container.as_deref(), Some("c1"));
    assert_eq!(tenant.who.annotations["weir.dns"], "yes");
    assert!(tenant.trusted);
    assert_eq!((tenant.leases, tenant.memory_total), (8, 1 << 30));

    let [device, _] = tenant.devices.as_slice() else {
        panic!("two devices");
    };
    assert_eq!(device.device, "eth0");
    assert_eq!(device.queues, [0..=4]);
    assert!(device.rx && device.tx && device.plugin);
    assert_eq!(device.modes, [Mode::ZeroCopy, Mode::Driver]);
    assert_eq!(device.memory, 32 << 20);
    let [dns, ptp, one] = device.filter.as_slice() else {
        panic!("three rules");
    };
    assert_eq!(dns.protocol, FilterProtocol::Udp);
    let net = "192.0.2.0".parse().expect("an address");
    assert_eq!(dns.destination, Some((net, 24)));
    assert_eq!((dns.source_port, dns.destination_port), (None, Some(53)));
    assert_eq!(ptp.protocol, FilterProtocol::EtherType(0x88f7));
    assert_eq!(one.source.map(|(_, len)| len), Some(128));
    let busy_poll = BusyPoll {
        most_usecs: 50,
        most_budget: 64,
    };
    assert_eq!(device.busy_poll, Some(busy_poll));

    let calls = tenant.calls;
    assert!(calls.af_xdp && calls.bpf_cgroup_device && calls.setxattr && calls.sysinfo);
    assert_eq!(calls.connect[0].from.port(), 80);
    assert_eq!(calls.connect[0].to.len(), 2);
    assert_eq!(calls.mknod, [CharacterDevice::Null, CharacterDevice::Zero]);
    let mount = calls.mount.expect("there is one");
    assert_eq!(mount.filesystems, ["tmpfs"]);
    assert_eq!(mount.fuse["ext4"], PathBuf::from("/usr/bin/fuse2fs"));
    assert_eq!(calls.sched_setscheduler, Some(10));
}

#[test]
fn what_can_never_work_is_refused() {
    let device = "[[tenant.device]]\nname = 'eth0'\nqueues = 0\nlease = 'rx'\n";
    let filter = "filter = { protocol = 'tcp' }\n";
    for (keys, rest, words) in [
        ("container = 'c'", device.to_owned(), "has a `container`"),
        (
            "annotations = { a = 'b' }",
            format!("{device}[tenant.calls]\nsysinfo = true\n"),
            "has a `annotations`",
        ),
        (
            "annotations = { a = 'b' }\nkill = true",
            "[tenant.calls]\nsysinfo = true\n".to_owned(),
            "so none is killed",
        ),
        (
            "uid = 1",
            format!("{device}{filter}[tenant.calls]\naf-xdp = true\n"),
            "no AF_XDP program works",
        ),
        (
            "uid = 1",
            device.replace("eth0", "eth*"),
            "a pattern names none",
        ),
    ] {
        let text = format!("[[tenant]]\nname = 'a'\n{keys}\n{rest}");
        let errors = errors(&text);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].contains(words), "{text}: {errors:?}");
    }
    // Each has a neighbour that works.
    valid(&format!(
        "[[tenant]]\nname = 'a'\nannotations = {{ a = 'b' }}\n{device}[tenant.calls]\naf-xdp = true\n"
    ));
    let other = device.replace("eth0", "eth1");
    valid(&format!(
        "[[tenant]]\nname = 'a'\nuid = 1\nkill = true\n{device}{filter}{other}[tenant.calls]\naf-xdp = true\n"
    ));
}

#[test]
fn a_script_is_no_executable() {
    let path = std::env::temp_dir().join(format!("weir-script-{}", std::process::id()));
    std::fs::write(&path, "#!/bin/sh\n").expect("it can be written");
    let text = with_tenant(&format!("uid = 1\nexecutable = '{}'", path.display()));
    let errors = errors(&text);
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("this is a script"), "{errors:?}");
}

#[test]
fn what_is_left_out_is_least() {
    let text = with_device("");
    let tenant = only_tenant(&text);
    assert_eq!((tenant.leases, tenant.memory_total), (64, 256 << 20));
    assert!(!tenant.trusted && !tenant.kill);
    assert_eq!(tenant.calls, super::super::Calls::default());
    let device = &tenant.devices[0];
    assert!(device.rx && !device.tx && !device.plugin);
    assert_eq!(device.modes, [Mode::Driver, Mode::Skb]);
    assert_eq!((device.memory, device.busy_poll), (16 << 20, None));
}

#[test]
fn an_empty_policy_is_valid_and_has_no_tenant() {
    assert_eq!(valid(""), Policy::default());
    assert_eq!(valid("# nobody\n"), Policy::default());
}

#[test]
fn every_error_is_reported_at_once_in_the_order_of_the_file() {
    let errors = errors(
        "colour = 1\n[[tenant]]\nname = ''\nuid = 'nobody-here'\nexecutable = 'bin/x'\n\
         [[tenant.device]]\nname = 'eth0'\nqueues = '3-1'\nlease = ['rxx']\nmodes = 'native'\n",
    );
    let words = [
        "1:1: the file has no key `colour`: its keys are tenant",
        "3:8: this is empty",
        "4:7: there is no user \"nobody-here\" in /etc/passwd",
        "5:14: the path \"bin/x\" depends on the broker's directory",
        "8:10: the range 3-1 ends before it begins: write \"1-3\"",
        "9:10: \"rxx\" is no direction: one of rx, tx; did you mean \"rx\"?",
        "10:9: \"native\" is no mode: one of zc, drv, skb",
    ];
    assert_eq!(errors.len(), words.len(), "{errors:#?}");
    for (error, words) in errors.iter().zip(words) {
        assert!(error.starts_with(words), "{error}\n{words}");
    }
}

#[test]
fn faults_of_the_syntax_are_reported_beside_the_others() {
    let errors = errors(
        "[[tenant]]\nname = \n[[tenant]]\nname = 'b'\nuid = 1 2\n[[tenant]]\nname = 'c'\nuid = true\n",
    );
    let starts = ["2:", "5:", "8:7: this is a boolean"];
    assert_eq!(errors.len(), starts.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(starts) {
        assert!(error.starts_with(start), "{error}\n{start}");
    }
}

#[test]
fn wrong_conditions_are_refused() {
    each_is_refused(
        with_tenant,
        3,
        &[
            ("uid = -1", 7, "a user id is from 0 to 4294967294"),
            ("uid = 4294967295", 7, "a user id is from 0"),
            (
                "uid = 99999999999999999999999999999999999999999",
                7,
                "a user id is from 0",
            ),
            ("uid = 1.5", 7, "this is a float: write a user id"),
            ("uid = []", 7, "an empty list allows nothing"),
            ("uid = [1, 'who']", 11, "no user \"who\""),
            ("gid = 'bind'", 7, "no group \"bind\""),
            ("executable = '/'", 14, "the path of a file"),
            ("executable = '/usr/../x'", 14, "without `.` and `..`"),
            ("executable = 1", 14, "this is an integer: write a path"),
            ("executable = \"/a\\u0000b\"", 14, "zero byte"),
            ("cgroup = '/'", 10, "every process"),
            ("cgroup = 'a/b'", 10, "no control group"),
            ("cgroup = '/a//b'", 10, "no control group"),
            ("cgroup = '/a/../b'", 10, "no control group"),
            ("container = ''", 13, "this is empty"),
            ("annotations = {}", 15, "every container"),
            (
                "annotations = { a = 1 }",
                21,
                "this is an integer: write a string",
            ),
            ("annotations = 'a=b'", 15, "annotations are a table"),
            ("everyone = false", 12, "who, then?"),
            (
                "everyone = 'yes'",
                12,
                "this is a string: write true or false",
            ),
        ],
    );
}

#[test]
fn a_tenant_without_a_condition_is_meant() {
    let errors = errors("[[tenant]]\nname = 'a'\n");
    assert!(
        errors[0].starts_with("1:1: this tenant has no condition"),
        "{errors:?}"
    );
    assert!(errors[0].contains("`everyone = true`"), "{errors:?}");
    let tenant = only_tenant(&with_tenant("everyone = true"));
    assert_eq!(tenant.who, super::super::Who::default());
}

#[test]
fn everyone_with_a_condition_is_a_contradiction() {
    let errors = errors(&with_tenant("everyone = true\ncgroup = '/a'"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("3:12: not everyone: `cgroup`"),
        "{errors:?}"
    );
}

#[test]
fn wrong_hashes_are_refused() {
    let digits = "0123456789abcdef".repeat(4);
    only_tenant(&with_tenant(&format!("uid = 1\nsha256 = '{digits}'")));
    for wrong in [
        "",
        "abc",
        &digits[1..],
        &digits.replace('0', "g"),
        &digits.replace('0', "é"),
    ] {
        let errors = errors(&with_tenant(&format!("uid = 1\nsha256 = '{wrong}'")));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with("4:10: a SHA-256 has 64"),
            "{errors:?}"
        );
    }
}

#[test]
fn wrong_limits_of_a_tenant_are_refused() {
    each_is_refused(
        |keys| with_tenant(&format!("{keys}\nuid = 1")),
        3,
        &[
            ("leases = 0", 10, "from 1 to 4096"),
            ("leases = 5000", 10, "from 1 to 4096"),
            ("memory-total = '1 GB'", 16, "write \"1 GiB\""),
            ("memory-total = '1k'", 16, "write \"1 KiB\""),
            ("memory-total = 0", 16, "from 4096 bytes"),
            ("memory-total = '99999999 GiB'", 16, "from 4096 bytes"),
            (
                "memory-total = '99999999999999999999 GiB'",
                16,
                "is no size",
            ),
            ("memory-total = 'lots'", 16, "is no size"),
            ("memory-total = '-1'", 16, "is no size"),
            ("memory-total = 1.5", 16, "this is a float"),
            ("kill = 1", 8, "true or false"),
            ("memory_total = 1", 1, "did you mean `memory-total`?"),
            ("uuid = 1", 1, "did you mean `uid`?"),
            ("device = 1", 10, "begin each with [[tenant.device]]"),
        ],
    );
}

#[test]
fn wrong_devices_are_refused() {
    each_is_refused(
        with_device,
        5,
        &[
            ("name = ''", 8, "no device can be named"),
            ("name = 'a/b'", 8, "1 to 127 bytes"),
            ("name = 'a b'", 8, "no device can be named"),
            ("name = '../x'", 8, "no device can be named"),
            ("queues = ''", 10, "is no queue"),
            ("queues = '0-'", 10, "is no queue"),
            ("queues = '+1'", 10, "\"+1\" is no queue"),
            ("queues = '0,0'", 10, "queue 0 is there twice"),
            ("queues = '0-4,3-7'", 10, "queue 3 is there twice"),
            ("queues = 4096", 10, "from 0 to 4095"),
            ("queues = '0-4096'", 10, "there is no queue 4096"),
            ("queues = [0]", 10, "this is an array"),
            ("lease = []", 9, "an empty list allows nothing"),
            ("lease = true", 9, "one of rx, tx"),
            ("modes = []", 9, "an empty list allows nothing"),
            ("modes = ['zc']", 9, "before the filter does"),
            ("memory = '257 MiB'", 10, "raise the tenant's memory-total"),
            ("memory = 1", 10, "from 4096 bytes"),
            ("filter = []", 10, "an empty list"),
            ("filter = 'udp'", 10, "a rule is a table, not a string"),
            ("filter = {}", 10, "a rule needs `protocol`"),
            ("filter = { protocol = 'icmp' }", 23, "no protocol"),
            ("filter = { protocol = 5 }", 23, "an EtherType is from 1536"),
            (
                "filter = { protocol = 0x88f7, source-port = 1 }",
                10,
                "no addresses and ports",
            ),
            (
                "filter = { protocol = 'udp', source-port = 0 }",
                44,
                "a port is from 1 to 65535",
            ),
            (
                "filter = { protocol = 'udp', port = 1 }",
                30,
                "no key `port`",
            ),
            (
                "filter = { protocol = 'ip', source = '10.0.0.0/33' }",
                38,
                "too long",
            ),
            (
                "filter = { protocol = 'ip', source = '10.0.0.0/+8' }",
                38,
                "is no prefix",
            ),
            (
                "filter = { protocol = 'ip', source = '10.0.0.1/8' }",
                38,
                "write 10.0.0.0/8",
            ),
            (
                "filter = { protocol = 'ip', source = 'fe80::1%eth0' }",
                38,
                "is no prefix",
            ),
            (
                "filter = { protocol = 'ip', source = '::/0', destination = '0.0.0.0/0' }",
                10,
                "in one IP version",
            ),
            // A former key, which let untrusted tenants have zero-copy.
            ("flow-rule = true", 1, "no key `flow-rule`"),
            ("busy-poll = true", 13, "busy-poll is a table"),
            ("busy-poll = { most-usecs = 1 }", 13, "needs `most-budget`"),
            (
                "busy-poll = { most-usecs = 0, most-budget = 1 }",
                28,
                "from 1 to 1000000",
            ),
            ("plugin = 'no'", 10, "true or false"),
            ("queue = 1", 1, "did you mean `queues`?"),
        ],
    );
}

#[test]
fn a_device_needs_its_name_its_queues_and_its_direction() {
    let errors = errors("[[tenant]]\nname = 'a'\nuid = 1\n[[tenant.device]]\n");
    let needs: Vec<_> = ["`name`", "`queues`", "`lease`"]
        .map(|key| format!("4:1: a device needs {key}"))
        .into();
    for (error, needs) in errors.iter().zip(&needs) {
        assert!(error.starts_with(needs), "{errors:?}");
    }
    assert_eq!(errors.len(), 3, "{errors:?}");
}

#[test]
fn a_filter_has_at_most_as_many_rules_as_the_program() {
    let rules = |count| {
        let rules = vec!["{ protocol = 'udp' }"; count].join(", ");
        with_device(&format!("filter = [ {rules} ]"))
    };
    valid(&rules(xsk::Filter::MAX_RULES));
    let errors = errors(&rules(xsk::Filter::MAX_RULES + 1));
    assert!(errors[0].contains("at most 128 rules"), "{errors:?}");
}

#[test]
fn zero_copy_is_for_the_trusted() {
    let rule = "filter = { protocol = 'udp' }";
    let sends = with_device("modes = 'zc'\nlease = 'tx'");
    valid(&sends.replace("uid = 1", "uid = 1\ntrusted = true"));
    let error = errors(&sends);
    assert!(error[0].contains("though it only sends"), "{error:?}");
    valid(&with_device("modes = 'zc'").replace("uid = 1", "uid = 1\ntrusted = true"));
    let errors = errors(&with_device(&format!("modes = 'zc'\n{rule}")));
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn what_is_about_reception_is_refused_for_a_lease_that_only_sends() {
    for key in ["filter = { protocol = 'udp' }", "plugin = true"] {
        let errors = errors(&with_device(&format!("{key}\nlease = 'tx'")));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("this lease only sends"), "{errors:?}");
    }
    valid(&with_device("plugin = false\nlease = 'tx'"));
}

#[test]
fn a_device_plugin_needs_all_queues() {
    let policy = |queues: &str| {
        let text = with_device("plugin = true");
        let at = text.find("queues = ").expect("queues");
        let end = at + text[at..].find('\n').expect("a line");
        format!("{}queues = {queues}{}", &text[..at], &text[end..])
    };
    for queues in ["0", "'0-3'", "'2-70, 0-1'", "'2,0,1'"] {
        valid(&policy(queues));
    }
    for (queues, missing) in [
        ("1", "queue 0"),
        ("'0-1,3'", "queue 2"),
        ("'5-9,0-3'", "queue 4"),
    ] {
        let errors = errors(&policy(queues));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(missing), "{errors:?}");
    }
}

#[test]
fn a_pinned_map_is_one_users() {
    let pinned = with_device("plugin = true\npinned-map = true");
    valid(&pinned);
    for (text, cause) in [
        (with_device("pinned-map = true"), "add `plugin = true`"),
        (
            pinned.replace("uid = 1", "uid = [1, 2]"),
            "give the tenant one `uid`",
        ),
        (
            pinned.replace("uid = 1", "gid = 1"),
            "give the tenant one `uid`",
        ),
        (
            pinned.replace("uid = 1", "uid = 1\ncgroup = '/x'"),
            "no other condition",
        ),
    ] {
        let errors = errors(&text);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(cause), "{errors:?}");
    }
}

#[test]
fn a_tenant_beside_a_device_plugin_is_told() {
    let text = "[[tenant]]\nname = 'a'\nuid = 1\n[[tenant.device]]\nname = 'eth0'\nqueues = '0-3'\nlease = 'rx'\nplugin = true\n\
        [[tenant]]\nname = 'b'\nuid = 2\n[[tenant.device]]\nname = 'eth0'\nqueues = 7\nlease = 'rx'\n";
    let checked = Policy::check(text.as_bytes(), &Names::default());
    let notes: Vec<_> = checked
        .notes
        .iter()
        .map(|note| (note.line, note.message.as_str()))
        .collect();
    assert!(
        matches!(notes[..], [(12, note)] if note.contains("\"a\" gets eth0 as a whole")),
        "{notes:?}"
    );
}

#[test]
fn wrong_calls_are_refused() {
    each_is_refused(
        with_calls,
        5,
        &[
            ("af-xdp = true", 10, "needs a device"),
            ("af-xdp = 1", 10, "true or false"),
            ("connect = []", 11, "an empty list"),
            ("connect = [{ from = '1.2.3.4:80' }]", 12, "needs `to`"),
            (
                "connect = { from = '1.2.3.4', to = '1.2.3.4:1' }",
                20,
                "an address and a port",
            ),
            (
                "connect = { from = '1.2.3.4:0', to = '1.2.3.4:1' }",
                20,
                "an address and a port",
            ),
            (
                "connect = { from = 'localhost:1', to = '1.2.3.4:1' }",
                20,
                "an address and a port",
            ),
            (
                "connect = { from = '1.2.3.4:1', to = '[::1]:1' }",
                38,
                "cannot reach [::1]:1",
            ),
            (
                "connect = { from = '1.2.3.4:1', to = [] }",
                38,
                "an empty list",
            ),
            ("mknod = 'sda'", 9, "no device that does no harm"),
            ("mknod = ['nul']", 10, "did you mean \"null\"?"),
            ("mount = true", 9, "mount is a table"),
            ("mount = {}", 9, "mount allows nothing"),
            (
                "mount = { filesystems = 'a/b' }",
                25,
                "no type of filesystem",
            ),
            (
                "mount = { fuse = { ext4 = 'fuse2fs' } }",
                27,
                "from the root",
            ),
            ("mount = { fuse = 1 }", 18, "fuse is a table"),
            (
                "mount = { fuse = { ext4 = '/opt/usr/fuse2fs' } }",
                27,
                "install it in /usr/local/bin",
            ),
            (
                "mount = { fuse = { ext4 = '/usrlocal/fuse2fs' } }",
                27,
                "install it in /usr/local/bin",
            ),
            (
                "mount = { filesystems = 'tmpfs', fuse = { tmpfs = '/bin/x' } }",
                41,
                "mounted by the kernel",
            ),
            (
                "mount = { filesystems = ['tmpfs', 'overlay'] }",
                35,
                "mount tmpfs alone",
            ),
            (
                "mount = { fuse = { a = '/usr/bin/python3.11' } }",
                24,
                "an interpreter",
            ),
            ("mount = { fuse = { a = '/bin/sh' } }", 24, "an interpreter"),
            ("mknod = ['null', 'console']", 18, "remove \"console\""),
            ("sched-setscheduler = 100", 22, "from 0 to 99"),
            ("sched-setscheduler = -1", 22, "from 0 to 99"),
            ("xattr = true", 1, "its keys are"),
        ],
    );
    let errors = errors("[[tenant]]\nname = 'a'\nuid = 1\ncalls = true\n");
    assert!(errors[0].starts_with("4:9: calls is a table"), "{errors:?}");
}

#[test]
fn one_address_is_redirected_once() {
    let one = "{ from = '1.2.3.4:1', to = '1.2.3.4:2' }";
    let errors = errors(&with_calls(&format!("connect = [{one}, {one}]")));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains("1.2.3.4:1 is redirected twice"),
        "{errors:?}"
    );
}

#[test]
fn names_are_plain_and_given_once() {
    for wrong in ["a b", "a/b", "a\\n", &"x".repeat(65), "é"] {
        let errors = errors(&format!("[[tenant]]\nname = \"{wrong}\"\nuid = 1\n"));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("is no name"), "{errors:?}");
    }
    let one = with_tenant("uid = 1");
    let errors = errors(&format!("{one}{one}"));
    assert_eq!(
        errors,
        ["6:8: a tenant before this one is named \"a\": choose another name"]
    );
}

fn two_devices(one: &str, other: &str, is_same_tenant: bool) -> String {
    let device =
        |queues| format!("[[tenant.device]]\nname = 'eth0'\nqueues = '{queues}'\nlease = 'rx'\n");
    let between = if is_same_tenant {
        ""
    } else {
        "[[tenant]]\nname = 'b'\nuid = 2\n"
    };
    format!(
        "[[tenant]]\nname = 'a'\nuid = 1\n{}{between}{}",
        device(one),
        device(other)
    )
}

#[test]
fn a_queue_is_granted_to_a_tenant_once() {
    let errors = errors(&two_devices("0-9", "3", true));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("8:1: queue 3 of eth0 is granted to this tenant twice"));
    valid(&two_devices("0-2,4-9", "3", true));
}

#[test]
fn a_queue_of_two_tenants_is_worth_a_note() {
    for (one, other, queue) in [("0-9", "3", 3), ("3", "0-9", 3), ("0-1,4-5", "2-3,5", 5)] {
        let notes = notes(&two_devices(one, other, false));
        assert_eq!(notes.len(), 1, "{notes:?}");
        let expected = format!("queue {queue} of eth0 is granted to \"a\" too");
        assert!(
            notes[0].starts_with("11:1: ") && notes[0].contains(&expected),
            "{notes:?}"
        );
    }
    assert_eq!(notes(&two_devices("0-2", "3", false)), Vec::<String>::new());
}

#[test]
fn a_tenant_that_no_process_gets_by_itself_is_worth_a_note() {
    let second = |who: &str| format!("[[tenant]]\nname = 'b'\n{who}\ncalls.sysinfo = true\n");
    for (first, who, is_noted) in [
        ("everyone = true", "uid = 1", true),
        ("uid = 1", "uid = 1", true),
        ("uid = 1", "uid = 2", false),
        ("uid = 1", "everyone = true", false),
    ] {
        let notes = notes(&(with_tenant(first) + &second(who)));
        assert_eq!(notes.len(), usize::from(is_noted), "{notes:?}");
        assert!(
            notes
                .iter()
                .all(|note| note.contains("weir run --tenant b")),
            "{notes:?}"
        );
    }
}

#[test]
fn weak_grants_are_worth_a_note() {
    for (text, words) in [
        (
            with_tenant("executable = '/bin/x'"),
            "an executable alone is no proof",
        ),
        (
            "[[tenant]]\nname = 'a'\nuid = 1\n".into(),
            "may have nothing",
        ),
    ] {
        let notes = notes(&text);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains(words), "{notes:?}");
    }
    assert_eq!(
        notes(&with_calls("mount.fuse.ext4 = '/usr/bin/fuse2fs'")),
        Vec::<String>::new()
    );
}

#[test]
fn a_file_has_its_limits() {
    let of_size = |size: usize| format!("#{}", "x".repeat(size - 1));
    valid(&of_size(1 << 20));
    let too_long = errors(&of_size((1 << 20) + 1));
    assert!(too_long[0].contains("at most 1 MiB"), "{too_long:?}");

    let tenants = |count| {
        let one = |number| format!("[[tenant]]\nname='{number}'\nuid={number}\n");
        (0..count).map(one).collect::<String>()
    };
    assert_eq!(valid(&tenants(4096)).tenants.len(), 4096);
    let too_many = errors(&tenants(4097));
    assert_eq!(too_many.len(), 1, "{too_many:?}");
    assert!(
        too_many[0].starts_with("12289:1: a policy has at most 4096"),
        "{too_many:?}"
    );
}

#[test]
fn what_is_not_utf8_is_refused_where_it_is() {
    let checked = Policy::check(b"[[tenant]]\nname = '\xff'\n", &Names::default());
    let errors = places(&checked.policy.expect_err("it is refused"));
    assert!(
        errors
            .iter()
            .any(|error| error.starts_with("2:9: TOML is UTF-8")),
        "{errors:?}"
    );
}

#[test]
fn a_single_tenant_table_is_refused_with_the_cure() {
    for text in ["[tenant]\nname = 'a'\n", "tenant = 1\n", "tenant = {}\n"] {
        let errors = errors(text);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].contains("begin each with [[tenant]]"),
            "{errors:?}"
        );
    }
    let errors = errors("tenant = [1]\n");
    assert!(
        errors[0].contains("a tenant is a table, not an integer"),
        "{errors:?}"
    );
}
