//! A refusal names the sandbox of a process that has the capability, and the capability of one that has not.

use crate::Outcome;
use crate::netns::{Lab, Side};
use hostnet::netns;
use rustix::thread::CapabilitySet;
use std::error::Error;
use std::os::fd::AsFd as _;
use testkit::Test;
use testkit::sandbox::{Refused, drop_capabilities};
use xsk::{AttachMode, ErrorKind, Feature, Mode, Program, Socket, Umem};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("sandbox: a seccomp filter is named", filter),
        Test::new("sandbox: a dropped capability is named", capability),
    ]
}

/// The text of an error, and its kind if it has one.
type Refusal = (String, Option<ErrorKind>);

/// A step that a sandbox can refuse.
struct Place {
    name: &'static str,
    /// The calls that it makes.
    calls: &'static [Refused],
    /// The capability that it needs.
    needs: Option<(CapabilitySet, &'static str)>,
    step: fn(&Side, &Umem) -> Option<Refusal>,
}

const XDP: Refused = Refused::Family(libc::AF_XDP);
const BPF: Refused = Refused::Call(libc::SYS_bpf);
const NET_RAW: Option<(CapabilitySet, &str)> = Some((CapabilitySet::NET_RAW, "CAP_NET_RAW"));
/// `CAP_SYS_ADMIN` has the rights of both.
const NET_ADMIN: Option<(CapabilitySet, &str)> = Some((
    CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN),
    "CAP_NET_ADMIN",
));
const ANY_BPF: Option<(CapabilitySet, &str)> = Some((
    CapabilitySet::BPF.union(CapabilitySet::SYS_ADMIN),
    "CAP_BPF",
));

/// Each step of the library whose error speaks of privilege.
const PLACES: [Place; 8] = [
    Place {
        name: "opening a socket",
        calls: &[
            XDP,
            BPF,
            Refused::Family(libc::AF_NETLINK),
            Refused::Call(libc::SYS_bind),
            Refused::Call(libc::SYS_setsockopt),
        ],
        needs: NET_RAW,
        step: |side, umem| of(Socket::builder(umem, side.device, 0).mode(Mode::Skb).open()),
    },
    Place {
        name: "opening a socket of packets of several chunks",
        calls: &[XDP],
        needs: NET_RAW,
        step: |side, _| {
            let umem = Umem::builder().chunks(64).fragments(true).build();
            let open = |umem| {
                Socket::builder(&umem, side.device, 0)
                    .mode(Mode::Skb)
                    .open()
            };
            of(umem.and_then(open))
        },
    },
    Place {
        name: "attaching a program",
        calls: &[BPF],
        needs: NET_ADMIN,
        step: |side, _| of(Program::attach_to(side.device, AttachMode::Skb)),
    },
    Place {
        name: "making a map",
        calls: &[BPF],
        needs: ANY_BPF,
        step: |side, _| of(Program::attach_to(side.device, AttachMode::Skb)),
    },
    Place {
        name: "making a UMEM",
        calls: &[Refused::Call(libc::SYS_memfd_create)],
        needs: None,
        step: |_, _| of(Umem::builder().chunks(64).build()),
    },
    Place {
        name: "deferring interrupts",
        calls: &[],
        needs: Some((CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN")),
        step: |side, _| {
            let device = xsk::Device::lookup(side.device).ok()?;
            of(device.defer_interrupts(2, std::time::Duration::from_micros(20)))
        },
    },
    Place {
        name: "probing sockets",
        calls: &[XDP],
        needs: NET_RAW,
        step: |_, _| probe(Feature::Sockets),
    },
    Place {
        name: "probing links",
        calls: &[BPF],
        needs: None,
        step: |_, _| probe(Feature::XdpLink),
    },
];

fn of<T>(result: xsk::Result<T>) -> Option<Refusal> {
    let error = result.err()?;
    Some((error.to_string(), Some(error.kind())))
}

fn probe(feature: Feature) -> Option<Refusal> {
    Some((feature.probe().err()?.to_string(), None))
}

/// The refusal of a step on a thread of its own, which `limit` has limited.
fn limited(
    place: &Place,
    lab: &Lab,
    umem: &Umem,
    limit: impl FnOnce() -> std::io::Result<()> + Send,
) -> crate::Result<Refusal> {
    // Not `inside`, which returns to the namespace before.
    let refusal = netns::run_in(
        lab.rx.as_fd(),
        || -> Result<_, Box<dyn Error + Send + Sync>> {
            limit()?;
            Ok((place.step)(&lab.rx, umem))
        },
    )?;
    Ok(refusal.ok_or_else(|| format!("{} was not refused", place.name))?)
}

fn filter() -> Outcome {
    let (umem, lab) = (Umem::builder().chunks(256).build()?, Lab::new()?);
    for place in PLACES {
        for call in place.calls {
            for errno in [libc::EPERM, libc::EACCES, libc::EAFNOSUPPORT, libc::ENOSYS] {
                let is_family = matches!(call, Refused::Family(_));
                if errno == libc::EAFNOSUPPORT && !is_family {
                    continue;
                }
                let (text, kind) = limited(&place, &lab, &umem, || call.with(errno))?;
                let case = format!("{}, {call:?} with {errno}: {text}", place.name);
                assert!(
                    matches!(kind, None | Some(ErrorKind::PermissionDenied)),
                    "{case}"
                );
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

fn capability() -> Outcome {
    let (umem, lab) = (Umem::builder().chunks(256).build()?, Lab::new()?);
    for place in PLACES {
        let Some((dropped, name)) = place.needs else {
            continue;
        };
        let (text, kind) = limited(&place, &lab, &umem, || drop_capabilities(dropped))?;
        let case = format!("{}: {text}", place.name);
        assert!(
            matches!(kind, None | Some(ErrorKind::PermissionDenied)),
            "{case}"
        );
        assert!(
            case.contains("this needs CAP_") && case.contains(name),
            "{case}"
        );
        assert!(!case.contains("seccomp"), "{case}");
    }
    Ok(())
}
