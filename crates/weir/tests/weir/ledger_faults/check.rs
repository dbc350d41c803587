//! Holds a sheet to the truth: exactly one row for each loss, every edge closed, and no counter of losses that moved
//! without being named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::thread::sleep;

use anyhow::{Context as _, Result, ensure};
use testkit::Limit;
use weir::ledger::balance::{Method, balance_by};
use weir::ledger::read::Reader;
use weir::ledger::sheet::{Direction, Edge, Loss, Sheet};
use weir::ledger::snapshot::Snapshot;
use weir::ledger::stage::Stage;

use crate::SOON;
use crate::ledger_faults::fault::{Fault, Open, Prepared, Ready, Row};
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, Lab};
use crate::ledger_faults::tools::{self, Key, Readings};
use crate::ledger_faults::{LOOK, PATIENCE_LOOKS};

/// A loss that was caused, with its true count.
pub struct Truth {
    pub rows: Vec<Row>,
    pub open: Vec<Open>,
    pub gap: Option<&'static str>,
    pub count: u64,
}

/// The evidence of some losses.
pub struct Observation {
    pub lab: Lab,
    pub before: Snapshot,
    pub after: Snapshot,
    /// The same of the namespace in which nothing happened.
    elsewhere: [Snapshot; 2],
    /// How far counters of losses moved by other programs.
    moved: BTreeMap<Key, u64>,
    pub truths: Vec<Truth>,
    /// Frames that `left` sent past its IP.
    raw: u64,
}

/// A fault that is prepared, with its turns: counts that are caused one after the other.
pub struct Turn {
    pub ready: Box<Ready>,
    pub counts: Vec<u64>,
}

/// Prepares a fault; none where the kernel lacks a feature for it.
pub fn prepare(
    lab: &mut Lab,
    kernel: &Kernel,
    fault: &Fault,
) -> Result<Result<Box<Ready>, &'static str>> {
    let prepared = (fault.prepare)(lab, kernel);
    match prepared.with_context(|| format!("cannot prepare {}", fault.name))? {
        Prepared::Ready(ready) => Ok(Ok(ready)),
        Prepared::Lacks(feature) => Ok(Err(feature)),
    }
}

/// Causes losses, one turn of each at a time, and looks before and after.
pub fn observe(mut lab: Lab, mut turns: Vec<Turn>) -> Result<Observation> {
    let (mut reader, mut other) = (lab.reader(), lab.other_reader());
    if let Some(refusal) = reader.refusal() {
        anyhow::bail!("the events cannot be counted: {refusal}");
    }
    let before = settle(&mut reader, |_| true)?;
    let elsewhere = other.snapshot()?;
    let earlier = Readings::take(&lab)?;
    let raw = lab.raw;
    let mut counts = vec![0; turns.len()];
    let most = turns
        .iter()
        .map(|turn| turn.counts.len())
        .max()
        .unwrap_or(0);
    for number in 0..most {
        for (turn, sum) in turns.iter_mut().zip(&mut counts) {
            if let Some(count) = turn.counts.get(number) {
                *sum += (turn.ready.cause)(&mut lab, *count)?;
            }
        }
    }
    let truths: Vec<Truth> = turns
        .iter()
        .zip(counts)
        .map(|(turn, count)| Truth {
            rows: turn.ready.rows.clone(),
            open: turn.ready.open.clone(),
            gap: turn.ready.gap,
            count,
        })
        .collect();
    let expected: u64 = truths.iter().map(Truth::packets).sum();
    let after = settle(&mut reader, |snapshot| {
        let sheet = balance_by(Method::default(), &before, snapshot);
        sheet.is_ok_and(|sheet| sheet.losses.iter().map(|loss| loss.count).sum::<u64>() >= expected)
    })?;
    let moved = Readings::take(&lab)?.since(&earlier);
    Ok(Observation {
        raw: lab.raw - raw,
        before,
        after,
        elsewhere: [elsewhere, other.snapshot()?],
        moved,
        truths,
        lab,
    })
}

/// Looks until the counters stand still and `is_complete`, or until they have stood still for so long that nothing
/// more can be on its way.
pub fn settle(reader: &mut Reader, is_complete: impl Fn(&Snapshot) -> bool) -> Result<Snapshot> {
    let mut last = reader.snapshot()?;
    let (mut still, mut limit) = (0, Limit::new(SOON));
    loop {
        sleep(LOOK);
        let next = reader.snapshot()?;
        still = if is_same(&last, &next) { still + 1 } else { 0 };
        last = next;
        if still >= 2 && (is_complete(&last) || still >= PATIENCE_LOOKS) {
            return Ok(last);
        }
        ensure!(!limit.is_over(), "the counters do not stand still");
    }
}

fn is_same(one: &Snapshot, other: &Snapshot) -> bool {
    let events = |snapshot: &Snapshot| {
        let events = snapshot.events.clone().unwrap_or_default();
        let is_ours = |netns: u64| netns == 0 || snapshot.namespaces.contains_key(&netns);
        let mut drops = events.drops;
        drops.retain(|drop| drop.netns != 0 && is_ours(drop.netns));
        let mut xdp = events.xdp;
        xdp.retain(|event| is_ours(event.netns));
        (drops, xdp)
    };
    one.namespaces == other.namespaces
        && one.xdp_sockets == other.xdp_sockets
        && events(one) == events(other)
}

impl Truth {
    fn packets(&self) -> u64 {
        let times = self.rows.iter().map(|row| row.times);
        times.sum::<u64>() * self.count
    }
}

impl Observation {
    /// The sheet by a method.
    pub fn sheet(&self, method: Method) -> Result<Sheet> {
        balance_by(method, &self.before, &self.after)
    }

    /// The other programs that have a counter of it.
    pub fn programs(&self) -> Vec<&'static str> {
        let programs: BTreeSet<_> = self.moved.keys().map(tools::program).collect();
        programs.into_iter().collect()
    }

    /// The counters of losses that moved, as other programs name them.
    pub fn counters(&self) -> Vec<String> {
        let counters = self.moved.iter().map(|(key, moved)| {
            let (_, device, name) = key;
            let program = tools::program(key);
            match device {
                Some(device) if program != "tc" => format!("{program}: {device} {name} {moved}"),
                _ => format!("{program}: {name} {moved}"),
            }
        });
        counters.collect()
    }

    /// Everything that is wrong with the sheet by a method.
    pub fn complaints(&self, method: Method) -> Result<Vec<String>> {
        let sheet = self.sheet(method)?;
        let mut complaints = Vec::new();
        self.check_rows(&sheet, &mut complaints);
        self.check_edges(&sheet, &mut complaints);
        self.check_counters(&sheet, &mut complaints);
        self.check_gaps(&sheet, &mut complaints);
        let [before, after] = &self.elsewhere;
        let other = balance_by(method, before, after)?;
        for loss in &other.losses {
            complaints.push(format!("a loss where there was none: {}", describe(loss)));
        }
        for edge in &other.edges {
            complaints.push(format!(
                "a flow where there was none: {}",
                describe_edge(edge)
            ));
        }
        Ok(complaints)
    }

    fn check_rows(&self, sheet: &Sheet, complaints: &mut Vec<String>) {
        let mut rest: Vec<&Loss> = sheet.losses.iter().collect();
        for truth in &self.truths {
            for row in truth.rows.iter().filter(|row| truth.count * row.times > 0) {
                let count = truth.count * row.times;
                let found = rest
                    .iter()
                    .position(|loss| self.differences(row, count, loss).is_empty());
                if let Some(place) = found {
                    rest.remove(place);
                    continue;
                }
                let near = rest.iter().find(|loss| loss.reason == row.reason);
                let why = near.map_or_else(
                    || "is missing".into(),
                    |loss| self.differences(row, count, loss).join(", "),
                );
                complaints.push(format!("the row {} of {count}: {why}", row.reason));
            }
        }
        for loss in rest {
            complaints.push(format!("another row: {}", describe(loss)));
        }
    }

    fn differences(&self, row: &Row, count: u64, loss: &Loss) -> Vec<String> {
        let mut differences = Vec::new();
        let mut differ = |field: &str, is: String, wanted: String| {
            if is != wanted {
                differences.push(format!("{field} is {is}, not {wanted}"));
            }
        };
        let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
        differ("the reason", loss.reason.clone(), row.reason.clone());
        differ("the count", loss.count.to_string(), count.to_string());
        differ(
            "the class",
            format!("{:?}", loss.class),
            format!("{:?}", row.class),
        );
        differ(
            "the stage",
            loss.stage.name().into(),
            row.stage.name().into(),
        );
        let inode = self.lab.place(row.at).inode;
        differ("the namespace", loss.netns.to_string(), inode.to_string());
        differ("the device", text(loss.device.as_deref()), text(row.device));
        differ(
            "the socket",
            text(loss.socket.as_deref()),
            text(row.socket.as_deref()),
        );
        let process = loss.process.as_ref().map(|process| process.pid);
        let own = row.process.then(std::process::id);
        differ("the process", format!("{process:?}"), format!("{own:?}"));
        let begins = |is: Option<&str>, wanted: Option<&str>| match (is, wanted) {
            (Some(is), Some(wanted)) => is.contains(wanted),
            (is, wanted) => is == wanted,
        };
        if !begins(loss.place.as_deref(), row.place) {
            differ("the place", text(loss.place.as_deref()), text(row.place));
        }
        if !begins(loss.qdisc.as_deref(), row.qdisc) {
            differ("the qdisc", text(loss.qdisc.as_deref()), text(row.qdisc));
        }
        for wanted in row.also {
            if !loss
                .also
                .iter()
                .any(|also| also.counter == *wanted && also.count == count)
            {
                differ("also seen as", describe_also(loss), (*wanted).into());
            }
        }
        differences
    }

    fn check_edges(&self, sheet: &Sheet, complaints: &mut Vec<String>) {
        for edge in &sheet.edges {
            let mut open = 0;
            for truth in &self.truths {
                let of_edge = truth.open.iter().filter(|open| {
                    (self.lab.place(open.at).inode, open.from, open.to)
                        == (edge.netns, edge.from, edge.to)
                });
                open += of_edge
                    .map(|it| it.times * truth.count.cast_signed())
                    .sum::<i64>();
            }
            let is_sending = (edge.from, edge.to, edge.direction)
                == (Stage::Ip, Stage::Transmit, Direction::Transmit);
            if is_sending && edge.netns == self.lab.left.inode {
                open -= self.raw.cast_signed();
            }
            if edge.unexplained != open || (open != 0 && edge.open.is_empty()) {
                complaints.push(format!(
                    "the balance is not {open}: {}",
                    describe_edge(edge)
                ));
            }
        }
    }

    /// Each counter of losses that moved stands in a row as its proof, or among its other places.
    fn check_counters(&self, sheet: &Sheet, complaints: &mut Vec<String>) {
        for (key, moved) in &self.moved {
            let named: u64 = sheet.losses.iter().map(|loss| named(loss, key)).sum();
            if named != *moved {
                let (netns, device, name) = key;
                let at = [At::Left, At::Right, At::Far]
                    .into_iter()
                    .find(|at| self.lab.place(*at).inode == *netns);
                let device = device.as_deref().unwrap_or_default();
                complaints.push(format!(
                    "{at:?} {device} {name} moved by {moved}, rows name {named}"
                ));
            }
        }
    }

    fn check_gaps(&self, sheet: &Sheet, complaints: &mut Vec<String>) {
        for wanted in self.truths.iter().filter_map(|truth| truth.gap) {
            if !sheet.gaps.iter().any(|gap| gap.hidden.contains(wanted)) {
                complaints.push(format!("no gap says '{wanted}': {:?}", sheet.gaps));
            }
        }
    }
}

/// How many packets of a counter a row names.
fn named(loss: &Loss, (netns, device, name): &Key) -> u64 {
    let is_here = loss.netns == *netns && (device.is_none() || loss.device == *device);
    let own = match loss.reason.as_str() {
        "qdisc dropped" => format!("{} dropped", loss.qdisc.as_deref().unwrap_or_default()),
        "drops" => "socket drops".into(),
        reason => reason.into(),
    };
    let mut count = 0;
    if is_here && own == *name && loss.proof.starts_with("counter") {
        count += loss.count;
    }
    let elsewhere = device.as_ref().map(|device| format!("{device} {name}"));
    for also in &loss.also {
        if (is_here && also.counter == *name) || Some(&also.counter) == elsewhere.as_ref() {
            count += also.count;
        }
    }
    count
}

pub fn describe(loss: &Loss) -> String {
    let mut text = format!(
        "{:?} {} {} {}",
        loss.class,
        loss.stage.name(),
        loss.count,
        loss.reason
    );
    for part in [&loss.place, &loss.device, &loss.qdisc, &loss.socket]
        .into_iter()
        .flatten()
    {
        let _ = write!(text, ", {part}");
    }
    let _ = write!(text, " (by {}; also {})", loss.proof, describe_also(loss));
    text
}

pub fn describe_also(loss: &Loss) -> String {
    let also = loss
        .also
        .iter()
        .map(|also| format!("{} {}", also.counter, also.count));
    also.collect::<Vec<_>>().join(", ")
}

pub fn describe_edge(edge: &Edge) -> String {
    let terms = |terms: &[weir::ledger::sheet::Term]| {
        let terms = terms
            .iter()
            .map(|term| format!("{} {}", term.name, term.count));
        terms.collect::<Vec<_>>().join(" + ")
    };
    format!(
        "{} {} to {}: {} = {} with {} left, bound {}, open {:?}",
        edge.namespace,
        edge.from.name(),
        edge.to.name(),
        terms(&edge.entered),
        terms(&edge.left),
        edge.unexplained,
        edge.bound,
        edge.open
    )
}
