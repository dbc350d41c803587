//! A stream of TCP whose packets the stack merges and cuts: every edge closes, in segments and in skbs.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use hostnet::ethtool::{self, Offload};
use weir::ledger::balance::{Method, balance_by};
use weir::ledger::sheet::{Also, Class, Loss};
use weir::ledger::snapshot::Snapshot;

use crate::ledger_faults::check::{describe, describe_edge, settle};
use crate::ledger_faults::lab::{Lab, RIGHT};
use crate::ledger_faults::programs::{Program, Xdp};
use crate::ledger_faults::socket::set_receive_buffer;

/// Bytes of a stream.
const BYTES: usize = 16 << 20;
/// The receive buffer where the device has a ring of 256 frames: fewer are on their way at any time, so that the ring
/// loses none, however late its NAPI gets a CPU.
const WINDOW: i32 = 128 << 10;
/// Of frames that a program sees, it drops one of so many.
const EVERY: u32 = 200;

/// The devices' treatment of the stream, and its losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The sender leaves 64 KiB in one skb.
    Tso,
    /// The sender cuts, the receiver merges.
    Gro,
    /// A program in the driver drops some.
    XdpLoss,
    /// A shaper drops some.
    Shaper,
}

/// Sends a stream, and looks at all edges when it has ended.
pub fn run(kind: Kind) -> Result<()> {
    let (lab, before, after, lost) = stream(kind)?;
    let sheet = balance_by(Method::default(), &before, &after)?;
    let mut complaints: Vec<String> = sheet
        .edges
        .iter()
        .filter(|edge| edge.unexplained != 0)
        .map(describe_edge)
        .collect();
    let mut rows: Vec<_> = sheet
        .losses
        .iter()
        .filter(|it| it.class == Class::Lost && !is_full_ring(it))
        .collect();
    match kind {
        Kind::Tso | Kind::Gro => {}
        Kind::XdpLoss | Kind::Shaper => {
            let row = (!rows.is_empty()).then(|| rows.remove(0));
            let count = row.map_or(0, |row| row.count);
            if count == 0 || lost.is_some_and(|lost| lost != count) {
                complaints.push(format!("{lost:?} were lost, the row has {count}"));
            }
        }
    }
    complaints.extend(rows.into_iter().map(describe));
    drop(lab);
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// Beside other programs the receiver may be too slow for the ring, which is no fault of the ledger: the sending end has
/// the row, and counted the same packets.
fn is_full_ring(loss: &Loss) -> bool {
    let is_counted = |also: &Also| also.counter == "tx_dropped" && also.count == loss.count;
    loss.place.as_deref() == Some("veth_xmit")
        && loss.device.as_deref() == Some("l0")
        && loss.also.iter().any(is_counted)
}

/// Without the factor between skbs and segments nothing closes.
pub fn factor_forgotten() -> Result<()> {
    let (_lab, before, after, _) = stream(Kind::Gro)?;
    let method = Method {
        segments: false,
        ..Method::default()
    };
    let sheet = balance_by(method, &before, &after)?;
    let open = sheet.edges.iter().find(|edge| !edge.closes());
    println!(
        "noticed: {}",
        open.map(describe_edge).context("nobody noticed")?
    );
    Ok(())
}

fn stream(kind: Kind) -> Result<(Lab, Snapshot, Snapshot, Option<u64>)> {
    let mut lab = Lab::new()?;
    let program = set_up(&lab, kind)?;
    let port = lab.port();
    let listener = lab.right.run(|| Ok(TcpListener::bind((RIGHT, port))?))?;
    if matches!(kind, Kind::Gro | Kind::XdpLoss) {
        set_receive_buffer(&listener, WINDOW)?;
    }
    let mut reader = lab.reader();
    let before = settle(&mut reader, |_| true)?;
    let sampled = program.as_ref().map(Program::sampled).transpose()?;
    let (read, sent) = thread::scope(|scope| {
        let receiver = scope.spawn(|| -> Result<usize> {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = Vec::new();
            Ok(stream.read_to_end(&mut bytes)?)
        });
        let sent = lab.left.run(|| -> Result<()> {
            let mut stream = TcpStream::connect((RIGHT, port))?;
            Ok(stream.write_all(&vec![0; BYTES])?)
        });
        (receiver.join(), sent)
    });
    sent?;
    let read = read.map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
    ensure!(read == BYTES, "{read} bytes came");
    let after = settle(&mut reader, |_| true)?;
    let lost = program.map(|it| it.sampled()).transpose()?.zip(sampled);
    let every = u64::from(EVERY);
    Ok((
        lab,
        before,
        after,
        lost.map(|(after, before)| after / every - before / every),
    ))
}

fn set_up(lab: &Lab, kind: Kind) -> Result<Option<Program>> {
    match kind {
        Kind::Tso => {}
        Kind::Gro => {
            lab.left
                .run(|| Ok(ethtool::set("l0", Offload::Tso, false)?))?;
            lab.right
                .run(|| Ok(ethtool::set("r0", Offload::Gro, true)?))?;
        }
        Kind::XdpLoss => {
            let index = lab.right.index("r0")?;
            let program = lab
                .right
                .run(|| Program::load("fault_sample", 0, EVERY)?.attach(index, Xdp::Native))?;
            return Ok(Some(program));
        }
        Kind::Shaper => {
            // Room for the largest skb: drops of one that tbf has to cut have no event.
            let words = "tc qdisc add dev l0 root tbf rate 200mbit burst 128kb limit 200kb";
            lab.left.command(words)?;
        }
    }
    Ok(None)
}
