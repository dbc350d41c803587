//! IP: headers, addresses, routes, fragments.

use std::net::Ipv4Addr;

use anyhow::Result;
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame::{self, Odd};
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, FAR, Lab, MACS, plain};

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "ip_reverse_path_filter",
        prepare: reverse_path,
        mixes: true,
    },
    Fault {
        name: "ip_bad_checksum",
        prepare: bad_checksum,
        mixes: true,
    },
    Fault {
        name: "ip_unknown_protocol",
        prepare: unknown_protocol,
        mixes: true,
    },
    Fault {
        name: "ip_time_to_live",
        prepare: time_to_live,
        mixes: false,
    },
    Fault {
        name: "ip_no_route",
        prepare: no_route,
        mixes: false,
    },
    Fault {
        name: "ip_address_of_another",
        prepare: another_address,
        mixes: true,
    },
    Fault {
        name: "ip_too_big",
        prepare: too_big,
        mixes: false,
    },
    Fault {
        name: "ip_fragments_time_out",
        prepare: fragments,
        mixes: false,
    },
];

fn udp(odd: &Odd) -> Vec<u8> {
    frame::udp(MACS, [9, 9], odd)
}

fn sent(row: Row, frame: Vec<u8>) -> Ready {
    Ready::new([row], move |lab: &mut Lab, count| {
        lab.send_all(&frame, count)?;
        Ok(count)
    })
}

fn row(stage: Stage, reason: &str) -> Row {
    Row::lost(stage, reason, At::Right)
        .place("ip_")
        .device("r0")
}

fn reverse_path(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    lab.right.sysctl("ipv4/conf/r0/rp_filter", "1")?;
    let mut odd = plain();
    odd.source = Ipv4Addr::new(203, 0, 113, 7);
    let row = row(Stage::Ip, "IP_RPFILTER").also(&["TcpExt.IPReversePathFilter"]);
    Ok(sent(row, udp(&odd)).done())
}

fn bad_checksum(_lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let mut odd = plain();
    odd.ip_error = 1;
    let row = row(Stage::Ip, "IP_CSUM").also(&["IpExt.InCsumErrors", "Ip.InHdrErrors"]);
    Ok(sent(row, udp(&odd)).done())
}

fn unknown_protocol(_lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    /// For experiments (RFC 3692).
    const EXPERIMENT: u8 = 253;
    let frame = frame::ip(MACS, EXPERIMENT, &[0; 40], &plain());
    let row = row(Stage::Transport, "IP_NOPROTO").also(&["Ip.InUnknownProtos"]);
    Ok(sent(row, frame).done())
}

fn time_to_live(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    lab.right.sysctl("ipv4/ip_forward", "1")?;
    let mut odd = plain();
    (odd.destination, odd.ttl) = (FAR, 1);
    let row = row(Stage::Ip, "IP_INHDR").also(&["Ip.InHdrErrors"]);
    Ok(sent(row, udp(&odd)).done())
}

fn no_route(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    lab.right.sysctl("ipv4/ip_forward", "1")?;
    let mut odd = plain();
    odd.destination = Ipv4Addr::new(203, 0, 113, 9);
    let row = row(Stage::Ip, "IP_INNOROUTES").also(&["IpExt.InNoRoutes"]);
    Ok(sent(row, udp(&odd)).done())
}

/// Another host's address, at this host's MAC address.
fn another_address(_lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let mut odd = plain();
    odd.destination = Ipv4Addr::new(192, 0, 2, 200);
    let row = row(Stage::Ip, "IP_INADDRERRORS").also(&["Ip.InAddrErrors"]);
    Ok(sent(row, udp(&odd)).done())
}

fn too_big(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    const DO_NOT_FRAGMENT: u16 = 0x4000;
    lab.right.sysctl("ipv4/ip_forward", "1")?;
    lab.right.command("ip link set r1 mtu 1000")?;
    let mut odd = plain();
    (odd.destination, odd.fragment, odd.payload) = (FAR, DO_NOT_FRAGMENT, 1200);
    let row = row(Stage::Ip, "PKT_TOO_BIG").also(&["Ip.FragFails"]);
    Ok(sent(row, udp(&odd)).done())
}

/// The first fragment of each never comes, so that nobody is told.
fn fragments(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    lab.right.sysctl("ipv4/ipfrag_time", "1")?;
    // The event has neither a device nor a namespace.
    let row = Row::lost(Stage::Ip, "Ip.ReasmFails", At::Right);
    let cause = move |lab: &mut Lab, count: u64| {
        for id in 0..count {
            let mut odd = plain();
            (odd.id, odd.fragment) = (id as u16, 100);
            lab.send(&frame::ip(MACS, 17, &[0; 64], &odd))?;
        }
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}
