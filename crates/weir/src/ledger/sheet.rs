//! The balance sheet of an interval: flows between stages, and losses with one owner each.

use serde::{Deserialize, Serialize};

use super::snapshot::{Gap, Process};
use super::stage::{Stage, Unit};

/// The way that packets take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the card to the application.
    Receive,
    /// From the application to the card.
    Transmit,
}

/// The fate of freed packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Nobody received them.
    Lost,
    /// A copy for a packet socket: the packet itself went on.
    CopyLost,
    /// Freed in normal operation: duplicates, packets for another host, queues of closed sockets.
    NotLost,
}

/// Packets that ended at one place for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Whether it is a loss.
    pub class: Class,
    /// The stage that owns it.
    pub stage: Stage,
    /// The unit of `count`.
    pub unit: Unit,
    /// Packets.
    pub count: u64,
    /// The same in segments, where it differs: each skb as many as GRO or TSO made of it.
    pub segments: u64,
    /// The reason, in the kernel's words: `SOCKET_RCVBUFF`, `rx_missed_errors`, `XDP_DROP`.
    pub reason: String,
    /// The function, tracepoint or counter where it is seen: `udp_queue_rcv_one_skb`.
    pub place: Option<String>,
    /// The explanation in a sentence.
    pub meaning: String,
    /// The inode of the network namespace; 0 where the loss has none, such as one of a CPU.
    pub netns: u64,
    /// The namespace's name, with its container.
    pub namespace: String,
    /// The device's name.
    pub device: Option<String>,
    /// The queueing discipline.
    pub qdisc: Option<String>,
    /// The socket, by its addresses.
    pub socket: Option<String>,
    /// The process of the socket.
    pub process: Option<Process>,
    /// The proof: `event skb:kfree_skb`, or a counter.
    pub proof: String,
    /// The other places where the same packets are counted.
    #[serde(default)]
    pub also: Vec<Also>,
    /// Whether the packets came in by a device, where an event tells.
    pub is_received: Option<bool>,
    /// The check of `weir doctor` that belongs to it.
    pub check: Option<String>,
}

/// Another place where a loss is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Also {
    /// The counter, with its device or namespace where that is another one: `Udp.RcvbufErrors`.
    pub counter: String,
    /// How many of the loss it counts.
    pub count: u64,
}

/// A flow into or out of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// Its name.
    pub name: String,
    /// The counter or event that proves it.
    pub proof: String,
    /// Packets; negative for a queue that became shorter, and for packets that never entered.
    pub count: i64,
    /// The limit of a flow that no counter has alone: `count` is then the rest of the balance up to this limit, and
    /// no proof of it.
    #[serde(default)]
    pub most: Option<u64>,
}

/// The balance between two stages: packets that left the first, and where they went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The direction.
    pub direction: Direction,
    /// The stage that the packets come from.
    pub from: Stage,
    /// The stage that they go to.
    pub to: Stage,
    /// The unit.
    pub unit: Unit,
    /// The inode of the network namespace.
    pub netns: u64,
    /// The namespace's name, with its container.
    pub namespace: String,
    /// The device or socket, where the edge has one.
    pub subject: Option<String>,
    /// Packets that came in.
    pub entered: Vec<Term>,
    /// Where they went: onward, lost, still queued.
    pub left: Vec<Term>,
    /// `entered` less `left`.
    pub unexplained: i64,
    /// How much of that the time between the readings and packets in flight can explain.
    pub bound: u64,
    /// Why the balance cannot be drawn to the last packet here: flows that nothing counts.
    #[serde(default)]
    pub open: Vec<String>,
}

/// The balance sheet of an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// The length of the interval, in seconds; none since boot.
    pub seconds: Option<f64>,
    /// The flows.
    pub edges: Vec<Edge>,
    /// Everything that ended, losses first, the largest first.
    pub losses: Vec<Loss>,
    /// Parts that cannot be seen.
    pub gaps: Vec<Gap>,
    /// Counters that were set back during the interval: their devices or sockets began anew.
    pub resets: Vec<String>,
}

impl Term {
    /// Its name, and of a rest its limit.
    pub fn label(&self) -> String {
        match self.most {
            Some(most) => format!("{}: the rest, {most} at most", self.name),
            None => self.name.clone(),
        }
    }
}

impl Edge {
    /// Whether the unexplained rest lies within its bound.
    pub fn closes(&self) -> bool {
        self.unexplained.unsigned_abs() <= self.bound
    }

    /// Whether nothing came or went.
    pub fn is_idle(&self) -> bool {
        let is_zero = |terms: &[Term]| terms.iter().all(|term| term.count == 0);
        is_zero(&self.entered) && is_zero(&self.left)
    }
}

impl Sheet {
    /// Names a gap.
    pub fn gap(&mut self, stage: Stage, text: impl Into<String>, cure: &str) {
        self.gaps.push(Gap {
            stage,
            hidden: text.into(),
            cure: cure.into(),
        });
    }

    /// The losses: neither lost copies nor normal frees.
    pub fn lost(&self) -> impl Iterator<Item = &Loss> {
        self.losses.iter().filter(|loss| loss.class == Class::Lost)
    }
}
