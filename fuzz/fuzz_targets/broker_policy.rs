//! The text of a broker's policy. Any bytes are a policy, or errors that lie in the text; none may panic.
#![no_main]

use broker::policy::{Diagnostic, Names, Policy};
use libfuzzer_sys::fuzz_target;

/// Two tenants and most keys, which a search would find late.
const BEGINNING: &[u8] = br#"
[[tenant]]
name = "a"
uid = [1, "bind"]
cgroup = "/a.slice"
[[tenant.device]]
name = "eth0"
queues = "0-3,7"
lease = ["rx", "tx"]
memory = "16 MiB"
filter = { protocol = "udp", destination = "192.0.2.0/24", destination-port = 53 }
[tenant.calls]
connect = { from = "192.0.2.1:80", to = ["127.0.0.1:8001"] }
mount = { filesystems = ["tmpfs"], fuse = { ext4 = "/usr/bin/fuse2fs" } }
[[tenant]]
name = "b"
"#;

fuzz_target!(|rest: &[u8]| {
    let names = Names::new("bind:x:105:110::/:/bin/false\n", "");
    for text in [rest, &[BEGINNING, rest].concat()] {
        let checked = Policy::check(text, &names);
        let lines = 1 + text.iter().filter(|&&byte| byte == b'\n').count();
        let errors = checked.policy.as_ref().err();
        assert!(
            errors.is_none_or(|errors| !errors.is_empty()),
            "refused without a reason"
        );
        for diagnostic in errors.into_iter().flatten().chain(&checked.notes) {
            check(diagnostic, lines);
        }
        for tenant in checked.policy.iter().flat_map(|policy| &policy.tenants) {
            assert!(!tenant.name.is_empty());
            assert!(tenant.devices.iter().all(|device| device.rx || device.tx));
        }
    }
});

fn check(diagnostic: &Diagnostic, lines: usize) {
    assert!((1..=lines).contains(&diagnostic.line) && diagnostic.column > 0);
    let shown = diagnostic.render("policy", "");
    // Nothing of the text gets to a terminal that is no text.
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'));
    assert!(shown.lines().count() == 3 && shown.len() < 4096, "{shown}");
}
