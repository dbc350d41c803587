//! Lists of netlink and ethtool at one moment, read when the run starts and again one interval later.

use std::collections::BTreeMap;

use anyhow::Result;
use hostnet::ethtool;
use hostnet::ethtool::Statistic;
use hostnet::rtnetlink::{Link, Neighbour, Qdisc, Rtnetlink};
use hostnet::sock_diag::inet::{self, InetSocket, Protocol, State};

/// Lists of netlink and ethtool at one moment.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// UDP sockets; none for a kernel that does not list them (`CONFIG_INET_UDP_DIAG`).
    pub udp: Option<Vec<InetSocket>>,
    /// TCP listeners; none for a kernel that does not list them (`CONFIG_INET_TCP_DIAG`).
    pub listeners: Option<Vec<InetSocket>>,
    /// Queueing disciplines with their counters.
    pub qdiscs: Vec<Qdisc>,
    /// Neighbours.
    pub neighbours: Vec<Neighbour>,
    /// The driver's own statistics of real cards (`ethtool -S`), by device.
    pub statistics: BTreeMap<String, Vec<Statistic>>,
}

impl Moment {
    /// The calling thread's network namespace now.
    pub fn read() -> Result<Self> {
        let mut rtnetlink = Rtnetlink::open()?;
        let links = rtnetlink.links()?;
        let is_card = |link: &&Link| link.kind.is_none() && !link.loopback;
        let statistics = links.iter().filter(is_card).filter_map(|link| {
            // A driver without statistics, or a device that was removed meanwhile.
            let statistics = ethtool::statistics(&link.name).ok()?;
            Some((link.name.clone(), statistics))
        });
        Ok(Self {
            udp: inet::sockets(Protocol::Udp, &State::ALL)?,
            listeners: inet::sockets(Protocol::Tcp, &[State::Listen])?,
            qdiscs: rtnetlink.qdiscs()?,
            neighbours: rtnetlink.neighbours()?,
            statistics: statistics.collect(),
        })
    }
}

/// Where the moments come from.
pub enum Moments {
    /// This host.
    Live,
    /// A test.
    Recorded(Box<[Moment; 2]>),
}

impl Moments {
    /// The first or the second moment; an error is kept as its text.
    pub fn take(&self, index: usize) -> Result<Moment, String> {
        match self {
            Self::Live => Moment::read().map_err(|error| format!("{error:#}")),
            Self::Recorded(moments) => Ok(moments[index].clone()),
        }
    }
}
