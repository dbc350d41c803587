//! UDP, TCP and their sockets.

use std::net::{TcpListener, TcpStream, UdpSocket};

use anyhow::{Context as _, Result};
use weir::ledger::stage::Stage;

use crate::ledger_faults::fault::{Fault, Prepared, Ready, Row};
use crate::ledger_faults::frame;
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, LEFT, Lab, MACS, RIGHT, plain};
use crate::ledger_faults::socket::{refuse_all, set_backlog, set_receive_buffer};

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "udp_receive_buffer_full",
        prepare: receive_buffer,
        mixes: true,
    },
    Fault {
        name: "udp_no_listener",
        prepare: no_listener,
        mixes: true,
    },
    Fault {
        name: "udp_bad_checksum",
        prepare: bad_checksum,
        mixes: true,
    },
    Fault {
        name: "udp_socket_filter",
        prepare: socket_filter,
        mixes: true,
    },
    Fault {
        name: "udp_closed_with_unread_datagrams",
        prepare: closed_unread,
        mixes: false,
    },
    Fault {
        name: "tcp_closed_port",
        prepare: closed_port,
        mixes: true,
    },
    Fault {
        name: "tcp_listen_queue_full",
        prepare: listen_queue,
        mixes: true,
    },
];

fn sender(lab: &Lab) -> Result<UdpSocket> {
    lab.left.run(|| Ok(UdpSocket::bind((LEFT, 0))?))
}

fn udp_socket(port: u16) -> String {
    format!("udp {RIGHT}:{port}")
}

fn receive_buffer(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let port = lab.port();
    let receiver = lab.right.udp(RIGHT, port)?;
    set_receive_buffer(&receiver, 4096)?;
    let sender = sender(lab)?;
    // Far more than it can hold.
    for _ in 0..100 {
        sender.send_to(&[0; 200], (RIGHT, port))?;
    }
    let row = Row::lost(Stage::Socket, "SOCKET_RCVBUFF", At::Right)
        .place("udp")
        .device("r0")
        .socket(udp_socket(port))
        .also(&["Udp.RcvbufErrors", "Udp.InErrors", "socket drops"]);
    let cause = move |_: &mut Lab, count| {
        for _ in 0..count {
            sender.send_to(&[0; 200], (RIGHT, port))?;
        }
        let _ = &receiver;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

fn no_listener(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let (port, sender) = (lab.port(), sender(lab)?);
    let row = Row::lost(Stage::Udp, "NO_SOCKET", At::Right)
        .place("udp")
        .device("r0")
        .also(&["Udp.NoPorts"]);
    let cause = move |_: &mut Lab, count| {
        for _ in 0..count {
            sender.send_to(&[0; 32], (RIGHT, port))?;
        }
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

fn bad_checksum(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let port = lab.port();
    let receiver = lab.right.udp(RIGHT, port)?;
    let mut odd = plain();
    odd.udp_error = 1;
    let frame = frame::udp(MACS, [port, port], &odd);
    let row = Row::lost(Stage::Udp, "UDP_CSUM", At::Right)
        .place("udp")
        .device("r0")
        .also(&["Udp.InCsumErrors", "Udp.InErrors"]);
    let cause = move |lab: &mut Lab, count| {
        let _ = &receiver;
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

fn socket_filter(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let port = lab.port();
    let receiver = lab.right.udp(RIGHT, port)?;
    refuse_all(&receiver)?;
    let sender = sender(lab)?;
    let row = Row::lost(Stage::Socket, "SOCKET_FILTER", At::Right)
        .place("udp")
        .device("r0")
        .socket(udp_socket(port))
        .also(&["Udp.InErrors", "socket drops"]);
    let cause = move |_: &mut Lab, count| {
        let _ = &receiver;
        for _ in 0..count {
            sender.send_to(&[0; 32], (RIGHT, port))?;
        }
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

/// The kernel frees them when it has forgotten whose they are.
fn closed_unread(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let port = lab.port();
    let mut receiver = Some(lab.right.udp(RIGHT, port)?);
    let sender = sender(lab)?;
    let cause = move |_: &mut Lab, count| {
        for _ in 0..count {
            sender.send_to(&[0; 32], (RIGHT, port))?;
        }
        receiver.take();
        Ok(count)
    };
    let ready = Ready::new([], cause).open(At::Right, Stage::Transport, Stage::Application, 1);
    Ok(ready.gap("a closed socket had not read").done())
}

fn closed_port(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let port = lab.port();
    let row = Row::lost(Stage::Tcp, "NO_SOCKET", At::Right)
        .place("tcp")
        .device("r0");
    let cause = move |lab: &mut Lab, count| {
        lab.left.run(|| {
            for _ in 0..count {
                let refused = TcpStream::connect((RIGHT, port)).err();
                refused.context("a connection to a closed port")?;
            }
            Ok(())
        })?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}

fn listen_queue(lab: &mut Lab, _kernel: &Kernel) -> Result<Prepared> {
    let port = lab.port();
    let listener = lab.right.run(|| Ok(TcpListener::bind((RIGHT, port))?))?;
    set_backlog(&listener, 1)?;
    // One more than the backlog.
    let waiting = lab.left.run(|| {
        let connect = || TcpStream::connect((RIGHT, port));
        Ok([connect()?, connect()?])
    })?;
    // The kernel takes a SYN for received and frees it without an event; of later segments it tells the reason.
    let row = Row::lost(Stage::Tcp, "TcpExt.ListenOverflows", At::Right)
        .socket(format!("tcp {RIGHT}:{port}"))
        .also(&["TcpExt.ListenDrops", "socket drops"]);
    let frame = frame::syn(MACS, [port, port], &plain());
    let cause = move |lab: &mut Lab, count| {
        let _ = (&listener, &waiting);
        lab.send_all(&frame, count)?;
        Ok(count)
    };
    Ok(Ready::new([row], cause).done())
}
