//! Virtual routing and forwarding.

use anyhow::Result;

use super::setting::{Wrong, fine, found, judge};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const L3MDEV: [&str; 2] = [
    "/proc/sys/net/ipv4/tcp_l3mdev_accept",
    "/proc/sys/net/ipv4/udp_l3mdev_accept",
];

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[RESOLVER_VRF, L3MDEV_ACCEPT];

const RESOLVER_VRF: Check = Check {
    id: "resolver-vrf",
    title: "DNS does not work inside a VRF",
    severity: Severity::Warning,
    why: "A resolver on the loopback is unreachable from a VRF, and does not query its own servers through one: `ip vrf exec NAME apt-get update` fails to resolve.",
    source: "David Ahern, Management VRF and DNS; Documentation/networking/vrf.rst",
    more: "Reads, if there is a VRF, /etc/resolv.conf for a server at a loopback address, as \
           systemd-resolved and dnsmasq write it. Such a server is bound to lo, which is in no VRF, and \
           queries its servers outside of any.\n\n\
           There is no automatic fix, since it changes the host's name resolution. Manually: put the \
           real servers into /etc/resolv.conf, as in /run/systemd/resolve/resolv.conf, and stop \
           systemd-resolved.",
    counters: &[],
    run: resolver,
};

const L3MDEV_ACCEPT: Check = Check {
    id: "l3mdev-accept",
    title: "services outside a VRF are unreachable through it",
    severity: Severity::Advice,
    why: "A server that is bound to no device, such as sshd, then accepts no connection from a VRF.",
    source: "Documentation/networking/vrf.rst, Applications; ip-sysctl.rst, tcp_l3mdev_accept",
    more: "Reads, if there is a VRF, net.ipv4.tcp_l3mdev_accept and udp_l3mdev_accept; both also \
           apply to IPv6. Leave them off for services that must be reachable in one VRF only, and \
           start those with `ip vrf exec NAME`.",
    counters: &[],
    run: l3mdev_accept,
};

fn vrf(context: &Context) -> Result<Option<Evidence>> {
    let is_vrf = |device: &&Device| device.kind() == Some("vrf");
    let mut devices = context.devices()?.iter();
    Ok(devices
        .find(is_vrf)
        .map(|vrf| Evidence::new("netlink, a device of kind vrf", vrf.name())))
}

fn resolver(context: &Context) -> Result<Vec<Verdict>> {
    let Some(vrf) = vrf(context)? else {
        return Ok(Vec::new());
    };
    let conf = context.read_if_there(RESOLV_CONF)?.unwrap_or_default();
    let Some(server) = loopback_server(&conf) else {
        return Ok(fine(RESOLV_CONF, "no server at a loopback address"));
    };
    let read = Evidence::new(RESOLV_CONF, format!("nameserver {server}"));
    let message = format!("Processes in {} cannot query {server}.", vrf.value);
    let fix = "name the real servers: `grep nameserver /run/systemd/resolve/resolv.conf > /etc/resolv.conf` after removing the link, and `systemctl disable --now systemd-resolved`; undo with `systemctl enable --now systemd-resolved` and `ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf`";
    Ok(found(vec![vrf, read], message, Fix::manual(fix)))
}

/// A server of resolv.conf(5) at a loopback address.
fn loopback_server(conf: &str) -> Option<&str> {
    conf.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let server = words
            .next()
            .filter(|word| *word == "nameserver")
            .and(words.next())?;
        let address = server.split('%').next()?.parse::<std::net::IpAddr>().ok()?;
        address.is_loopback().then_some(server)
    })
}

fn l3mdev_accept(context: &Context) -> Result<Vec<Verdict>> {
    if vrf(context)?.is_none() {
        return Ok(Vec::new());
    }
    judge(context, &L3MDEV, |_, value| {
        (value == "0").then(|| Wrong {
            message: "Sockets bound to no device receive nothing from a VRF.".into(),
            new: "1".into(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::loopback_server;

    #[test]
    fn only_loopback_addresses_count() {
        let stub = "# nameserver 127.0.0.1\nsearch x\nnameserver 127.0.0.53\noptions edns0\n";
        assert_eq!(loopback_server(stub), Some("127.0.0.53"));
        assert_eq!(loopback_server("nameserver ::1"), Some("::1"));
        for other in [
            "nameserver 10.1.2.3",
            "nameserver",
            "",
            "nameserver x",
            "nameserver fe80::1%eth0",
        ] {
            assert_eq!(loopback_server(other), None, "{other}");
        }
    }
}
