//! The families of the page.

use super::family::{DEFAULT_SERIES, Definition, FEWEST_SERIES, Kind};

/// Labels of losses and frees.
const LOSS: &[&str] = &["stage", "reason", "place", "namespace", "device"];
/// Labels of an edge.
const EDGE: &[&str] = &["direction", "from", "to", "namespace", "device"];
/// Stages.
const STAGES: usize = 20;

/// A family whose series cannot become many.
const fn fixed(name: &'static str, kind: Kind, help: &'static str) -> Definition {
    Definition {
        name,
        kind,
        unit: None,
        help,
        labels: &[],
        kept: 0,
        others: 0,
        most: 1,
    }
}

/// One of the exporter itself, in seconds.
const fn seconds(name: &'static str, help: &'static str) -> Definition {
    Definition {
        unit: Some("seconds"),
        ..fixed(name, Kind::Gauge, help)
    }
}

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $definition:expr;)*) => {
        $($(#[$doc])* pub static $name: Definition = $definition;)*
        /// All that the reader of counters shows.
        pub static ALL: &[&Definition] = &[$(&$name),*];
    };
}

families! {
    /// By stage; all stages from the start.
    STAGE_LOSSES = Definition {
        labels: &["stage"],
        most: STAGES,
        ..fixed("weir_stage_losses", Kind::Counter,
            "Packets that a stage of the packet path lost, since the exporter began.")
    };
    /// By reason and place.
    LOSSES = Definition {
        labels: LOSS, kept: 1, others: STAGES, most: 340,
        ..fixed("weir_losses", Kind::Counter,
            "Packets lost, each at the one stage that owns the loss, by reason and place.")
    };
    /// Copies for packet sockets.
    COPIES = Definition {
        labels: LOSS, kept: 1, others: 2, most: 40,
        ..fixed("weir_lost_copies", Kind::Counter,
            "Copies for packet sockets that were lost; the packets themselves went on.")
    };
    /// Not losses.
    FREES = Definition {
        labels: LOSS, kept: 1, others: STAGES, most: 60,
        ..fixed("weir_normal_frees", Kind::Counter,
            "Packets freed in normal operation: duplicates, packets for other hosts.")
    };
    /// Imbalance of an edge.
    UNEXPLAINED = Definition {
        unit: Some("packets"),
        labels: EDGE, kept: 3, others: 40, most: 110,
        ..fixed("weir_unexplained_packets", Kind::Gauge,
            "Packets that entered an edge of the packet path less those accounted for, between the last two snapshots.")
    };
    /// Its bound.
    BOUND = Definition {
        unit: Some("packets"),
        labels: EDGE, kept: 3, others: 40, most: 110,
        ..fixed("weir_unexplained_bound_packets", Kind::Gauge,
            "How much of weir_unexplained_packets the time between readings and packets in flight can explain.")
    };
    /// Stages that are not seen.
    GAPS = Definition {
        labels: &["stage"], most: STAGES,
        ..fixed("weir_gaps", Kind::Gauge,
            "Parts of a stage that cannot be seen here; weir ledger names them.")
    };
    /// Packets of devices.
    DEVICE_PACKETS = Definition {
        unit: Some("packets"),
        labels: &["direction", "namespace", "device"], kept: 1, others: 2, most: 404,
        ..fixed("weir_device_packets", Kind::Counter, "Packets of a device, as the kernel counts them.")
    };
    /// Errors of devices.
    DEVICE_ERRORS = Definition {
        labels: &["counter", "namespace", "device"], kept: 1, others: 24, most: 140,
        ..fixed("weir_device_errors", Kind::Counter,
            "Errors and drops of a device by rtnl_link_stats64; one loss can be in several of them.")
    };
    /// `softnet_stat`, first column.
    SOFTNET_PROCESSED = Definition {
        unit: Some("packets"),
        labels: &["cpu"], others: 1, most: 65,
        ..fixed("weir_softnet_processed_packets", Kind::Counter,
            "Packets that a CPU took from its devices and its backlog; a packet can count several times.")
    };
    /// Second column.
    SOFTNET_DROPPED = Definition {
        unit: Some("packets"),
        labels: &["cpu"], others: 1, most: 65,
        ..fixed("weir_softnet_dropped_packets", Kind::Counter, "Packets dropped since the backlog of a CPU was full.")
    };
    /// Third column.
    SOFTNET_SQUEEZED = Definition {
        labels: &["cpu"], others: 1, most: 65,
        ..fixed("weir_softnet_time_squeezed", Kind::Counter,
            "How often a CPU ended a round of receiving with packets left, since its budget or time was used up.")
    };
    /// MIBs.
    MIB = Definition {
        labels: &["protocol", "counter", "namespace"], kept: 2, others: 48, most: 180,
        ..fixed("weir_mib", Kind::Counter, "Counters of IP, UDP and TCP, by their names in nstat.")
    };
    /// Neighbour tables.
    NEIGHBOURS = Definition {
        labels: &["table", "counter"],
        kept: 1,
        others: 2,
        most: 32,
        ..fixed("weir_neighbours", Kind::Counter,
            "Counters of the neighbour tables for all network namespaces, by their names in /proc/net/stat.")
    };
    /// Sockets.
    SOCKETS = Definition {
        labels: &["protocol", "namespace"], kept: 1, others: 5, most: 40,
        ..fixed("weir_sockets", Kind::Gauge, "Sockets.")
    };
    /// Their queues.
    SOCKET_QUEUES = Definition {
        unit: Some("bytes"),
        labels: &["protocol", "namespace"], kept: 1, others: 5, most: 40,
        ..fixed("weir_socket_queued_bytes", Kind::Gauge, "Bytes in receive queues of sockets that do not listen.")
    };
    /// AF_XDP rings.
    RING_ENTRIES = Definition {
        labels: &["ring", "mode", "namespace", "device", "queue"], kept: 2, others: 12, most: 64,
        ..fixed("weir_xdp_ring_entries", Kind::Gauge, "Entries in a ring of AF_XDP sockets.")
    };
    /// Their size.
    RING_SLOTS = Definition {
        labels: &["ring", "mode", "namespace", "device", "queue"], kept: 2, others: 12, most: 64,
        ..fixed("weir_xdp_ring_slots", Kind::Gauge, "Slots of a ring of AF_XDP sockets.")
    };
    /// Their losses.
    XDP_SOCKET = Definition {
        labels: &["counter", "mode", "namespace", "device", "queue"], kept: 2, others: 15, most: 50,
        ..fixed("weir_xdp_socket", Kind::Counter,
            "Counters of AF_XDP sockets, since the exporter began: rx_dropped and rx_full are losses, the others waits and errors.")
    };
    /// Resets.
    RESETS = fixed("weir_resets", Kind::Counter,
        "Counters of the kernel that were set back: their devices or sockets began anew.");
    /// Snapshots.
    SNAPSHOTS = fixed("weir_exporter_snapshots", Kind::Counter, "Snapshots taken.");
    /// Failed ones.
    SNAPSHOT_ERRORS = fixed("weir_exporter_snapshot_errors", Kind::Counter,
        "Snapshots that failed; scrapes were answered with status 503.");
    /// New readers.
    READER_RESTARTS = fixed("weir_exporter_reader_restarts", Kind::Counter,
        "How often the reader of counters began anew after a failed snapshot; losses meanwhile are not counted.");
    /// Faults of the web configuration.
    WEB_CONFIG_ERRORS = fixed("weir_exporter_web_config_errors", Kind::Counter,
        "Changes of the web configuration that were refused; the former one stays in force.");
    /// When the snapshot was taken.
    SNAPSHOT_TIME = seconds("weir_exporter_snapshot_timestamp_seconds", "When the snapshot was taken, since 1970.");
    /// How old it is.
    SNAPSHOT_AGE = seconds("weir_exporter_snapshot_age_seconds", "Age of the snapshot when the page was written.");
    /// How long it took.
    SNAPSHOT_DURATION = seconds("weir_exporter_snapshot_duration_seconds", "Time that reading the snapshot took.");
    /// How long all took.
    COLLECTION_DURATION = seconds("weir_exporter_collection_duration_seconds",
        "Time from the request to the page: snapshot, balance and families.");
    /// Start.
    START_TIME = seconds("weir_exporter_start_time_seconds", "When the exporter began to count losses, since 1970.");
    /// The interval of unexplained.
    INTERVAL = seconds("weir_exporter_interval_seconds", "Time between the last two snapshots.");
    /// Values without a series of their own.
    FOLDED = Definition {
        labels: &["family"], most: 20,
        ..fixed("weir_exporter_folded", Kind::Counter,
            "Values that were added to an `other` series since their family was full, by family.")
    };
    /// Series.
    SERIES = fixed("weir_exporter_series", Kind::Gauge, "Series of this page, but those of the HTTP process.");
    /// Limit.
    SERIES_LIMIT = fixed("weir_exporter_series_limit", Kind::Gauge, "Most series of the page (--series).");
    /// Version.
    BUILD = Definition {
        labels: &["version", "kernel"],
        ..fixed("weir_exporter_build_info", Kind::Gauge, "Version of weir and of the kernel; the value is 1.")
    };
}

/// Responses by their status.
pub static RESPONSES: Definition = Definition {
    labels: &["code"],
    most: 12,
    ..fixed(
        "weir_exporter_http_responses",
        Kind::Counter,
        "Responses by their status.",
    )
};
/// Connections that had none.
pub static ABANDONED: Definition = Definition {
    labels: &["cause"],
    most: 4,
    ..fixed(
        "weir_exporter_http_abandoned_connections",
        Kind::Counter,
        "Connections that ended without a response: too slow, not TLS, closed, or ended for a newer one.",
    )
};
/// Series of the HTTP process.
const HTTP_SERIES: usize = RESPONSES.most + ABANDONED.most;

const _: () = {
    let mut most = HTTP_SERIES;
    let mut fewest = HTTP_SERIES;
    let mut at = 0;
    while at < ALL.len() {
        most += ALL[at].most;
        fewest += ALL[at].fewest();
        at += 1;
    }
    assert!(
        most <= DEFAULT_SERIES,
        "the families have too many series together"
    );
    assert!(
        fewest <= FEWEST_SERIES,
        "the families need more series than FEWEST_SERIES"
    );
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_families_together_keep_every_limit() {
        for limit in [500, 501, 600, 1000, 1999, DEFAULT_SERIES, 2001, 20_000] {
            let series: usize = ALL.iter().map(|family| family.most(limit)).sum();
            assert!(
                series + HTTP_SERIES <= limit,
                "{series} and {HTTP_SERIES} of {limit}"
            );
        }
        for family in ALL {
            assert_eq!(family.most(DEFAULT_SERIES), family.most, "{}", family.name);
        }
    }
}
