//! A refusal names the missing capability, or the sandbox of a process that has it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::thread;

use hostnet::ethtool::{self, Offload};
use hostnet::rtnetlink::{Monitor, Rtnetlink};
use hostnet::sock_diag::inet::{self, Protocol, State};
use hostnet::sysfs::Sysfs;
use hostnet::{Error, ErrorKind, netns, nfnetlink};
use rustix::thread::CapabilitySet;

use testkit::sandbox::{Refused, drop_capabilities};
use testkit::{Result, Test};

use crate::refusal;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_seccomp_filter_is_named", filter),
        Test::new("a_dropped_capability_is_named", capability),
    ]
}

/// A step that a sandbox can refuse.
struct Place {
    name: &'static str,
    /// The calls that it makes.
    calls: &'static [Refused],
    /// The capability that it needs.
    needs: Option<(CapabilitySet, &'static str)>,
    step: fn() -> Error,
}

const NETLINK: Refused = Refused::Family(libc::AF_NETLINK);
const SOCKET: Refused = Refused::Call(libc::SYS_socket);
const ADMIN: Option<(CapabilitySet, &str)> = Some((CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"));
const NET: Option<(CapabilitySet, &str)> = Some((CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"));

/// Each step of this crate whose error speaks of privilege, with a device `lo`.
const PLACES: [Place; 11] = [
    Place {
        name: "a netlink socket",
        calls: &[NETLINK, SOCKET],
        needs: None,
        step: || refusal(Rtnetlink::open()),
    },
    Place {
        name: "a change over rtnetlink",
        calls: &[],
        needs: NET,
        step: || refusal(Rtnetlink::open().and_then(|mut it| it.set_up(1))),
    },
    Place {
        name: "notifications",
        calls: &[NETLINK, SOCKET],
        needs: None,
        step: || refusal(Monitor::open()),
    },
    Place {
        name: "sockets of the host",
        calls: &[NETLINK, SOCKET],
        needs: None,
        step: || refusal(inet::sockets(Protocol::Udp, &State::ALL)),
    },
    Place {
        name: "tables of nftables",
        calls: &[NETLINK, SOCKET],
        needs: NET,
        step: || refusal(nfnetlink::tables()),
    },
    Place {
        name: "an offload",
        calls: &[
            Refused::Family(libc::AF_INET),
            SOCKET,
            Refused::Call(libc::SYS_ioctl),
        ],
        needs: NET,
        step: || refusal(ethtool::set("lo", Offload::Gro, true)),
    },
    Place {
        name: "an offload's state",
        calls: &[Refused::Family(libc::AF_INET), SOCKET],
        needs: None,
        step: || refusal(ethtool::features("lo")),
    },
    Place {
        name: "a namespace",
        calls: &[Refused::Call(libc::SYS_unshare)],
        needs: ADMIN,
        step: || refusal(netns::create()),
    },
    Place {
        name: "entering a namespace",
        calls: &[Refused::Call(libc::SYS_setns)],
        needs: ADMIN,
        step: || refusal(own().and_then(|own| netns::enter(own.as_fd()))),
    },
    Place {
        name: "a process in a namespace",
        calls: &[Refused::Call(libc::SYS_setns)],
        needs: ADMIN,
        step: || {
            refusal(own().and_then(|own| netns::spawn(own.as_fd(), &mut Command::new("true"))))
        },
    },
    Place {
        name: "sysfs",
        calls: &[
            Refused::Call(libc::SYS_fsopen),
            Refused::Call(libc::SYS_fsmount),
        ],
        needs: ADMIN,
        step: || refusal(Sysfs::mount()),
    },
];

fn own() -> hostnet::Result<OwnedFd> {
    netns::open(Path::new("/proc/thread-self/ns/net"))
}

/// The error of a step in a network namespace of its own, on a thread that `limit` has limited.
fn limited(
    step: fn() -> Error,
    limit: impl FnOnce() -> std::io::Result<()> + Send,
) -> Result<Error> {
    let namespace = netns::create()?;
    thread::scope(|scope| {
        let limited = scope.spawn(|| -> Result<Error> {
            netns::enter(namespace.as_fd())?;
            limit()?;
            Ok(step())
        });
        limited.join().expect("no panic")
    })
}

fn filter() -> Result<()> {
    for place in PLACES {
        for call in place.calls {
            for errno in [libc::EPERM, libc::EACCES, libc::EAFNOSUPPORT, libc::ENOSYS] {
                let is_family = matches!(call, Refused::Family(_));
                if errno == libc::EAFNOSUPPORT && !is_family {
                    continue;
                }
                let error = limited(place.step, || call.with(errno))?;
                let case = format!("{}, {call:?} with {errno}: {error}", place.name);
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{case}");
                assert_eq!(
                    case.matches("seccomp filter refuses it").count(),
                    1,
                    "{case}"
                );
                assert!(!case.contains("this needs CAP"), "{case}");
            }
        }
    }
    Ok(())
}

fn capability() -> Result<()> {
    for place in PLACES {
        let Some((dropped, name)) = place.needs else {
            continue;
        };
        let error = limited(place.step, || drop_capabilities(dropped))?;
        let case = format!("{}: {error}", place.name);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{case}");
        assert_eq!(
            case.matches(&format!("this needs {name}")).count(),
            1,
            "{case}"
        );
        assert!(!case.contains("seccomp"), "{case}");
    }
    Ok(())
}
