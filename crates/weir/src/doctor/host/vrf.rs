//! What virtual routing and forwarding gets in the way of.

use anyhow::Result;

use super::setting::{Wrong, fine, found, judge};
use crate::doctor::context::LinkBrief;
use crate::doctor::{Check, Context, Evidence, Fix, Severity, Verdict};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const L3MDEV: [&str; 2] = [
    "/proc/sys/net/ipv4/tcp_l3mdev_accept",
    "/proc/sys/net/ipv4/udp_l3mdev_accept",
];

pub const RESOLVER_VRF: Check = Check {
    id: "resolver-vrf",
    title: "names cannot be resolved inside a VRF",
    severity: Severity::Warning,
    why: "A resolver on the loopback cannot be reached from a VRF, nor does it ask its own servers through one: `ip vrf exec NAME apt-get update` fails to resolve.",
    source: "David Ahern, Management VRF and DNS; Documentation/networking/vrf.rst",
    more: "Where there is a VRF it reads /etc/resolv.conf for a server at a loopback address, as \
           systemd-resolved and dnsmasq write it. Such a server is bound to lo, which is in no VRF, and \
           sends its own questions outside of any.\n\n\
           Nothing of it is mended by itself, for it changes how the host resolves names. By hand: \
           put the real servers into /etc/resolv.conf, as /run/systemd/resolve/resolv.conf has them, \
           and stop systemd-resolved.",
    run: resolver,
};

pub const L3MDEV_ACCEPT: Check = Check {
    id: "l3mdev-accept",
    title: "services outside of a VRF are not reached through it",
    severity: Severity::Advice,
    why: "A server that is bound to no device, such as sshd, then accepts nothing that comes in through a VRF.",
    source: "Documentation/networking/vrf.rst, Applications; ip-sysctl.rst, tcp_l3mdev_accept",
    more: "Where there is a VRF it reads net.ipv4.tcp_l3mdev_accept and udp_l3mdev_accept; both hold \
           for IPv6 too. Leave them off where services shall be reached in one VRF only, and start \
           these with `ip vrf exec NAME`.",
    run: l3mdev_accept,
};

fn vrf(context: &Context) -> Result<Option<Evidence>> {
    let is_vrf = |link: &&LinkBrief| link.kind.as_deref() == Some("vrf");
    let mut links = context.links()?.iter();
    Ok(links
        .find(is_vrf)
        .map(|vrf| Evidence::new("netlink, a device of kind vrf", &vrf.name)))
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
    let message = format!("Processes in {} cannot ask {server}.", vrf.value);
    let fix = "name the real servers: `grep nameserver /run/systemd/resolve/resolv.conf > /etc/resolv.conf` after removing the link, and `systemctl disable --now systemd-resolved`; back with `systemctl enable --now systemd-resolved` and `ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf`";
    Ok(found(vec![vrf, read], message, Fix::Text(fix.into())))
}

/// A server of resolv.conf(5) that is at a loopback address.
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
            message: "Sockets bound to no device hear nothing from a VRF.".into(),
            new: "1".into(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::loopback_server;

    #[test]
    fn servers_at_a_loopback_address() {
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
