//! Failures of tests that are known to be the driver's. Such a test runs all the same, so that one that
//! passes again is seen.

/// Card of `./run guests`, test and reason.
const KNOWN: [(&str, &str, &str); 10] = [
    ("igb", "ZC few chunks to receive into", STALE),
    ("igb", "ZC all chunks are received into", STALE),
    ("igb", "ZC life: other rings and back", LATE),
    (
        "vmxnet3",
        "DRV XDP_METADATA_COPY",
        "vmxnet3 leaves its programs no room for metadata",
    ),
    ("vmxnet3", "DRV STAT_RX_DROPPED", PASSED_BY),
    ("vmxnet3", "DRV resets lose no chunk", PASSED_BY),
    ("vmxnet3", "DRV life: device down and up", PASSED_BY),
    ("vmxnet3", "DRV life: another MTU and back", PASSED_BY),
    ("vmxnet3", "DRV life: other rings and back", PASSED_BY),
    ("vmxnet3", "DRV all chunks are received into", PASSED_BY),
];

/// Where FILL has too few chunks at the end of the ring, `igb_alloc_rx_buffers_zc` does not clear the
/// next descriptor, and the packet that it had a round ago is taken for a new one.
const STALE: &str = "igb delivers old packets again when the FILL ring runs empty";

/// They are intact, and were not delivered before.
const LATE: &str =
    "igb delivers packets late and in reverse after its rings were resized under load";

/// A program that drops everything drops nothing then, and the card still shows it as attached.
const PASSED_BY: &str =
    "vmxnet3 runs its XDP program no more after it was set down and up, or got another MTU";

fn is_on(card: &str) -> bool {
    std::env::var("XSK_TEST_CARD").is_ok_and(|on| on == card)
}

/// The reason that a test may fail here.
pub fn reason(test: &str) -> Option<&'static str> {
    let known = KNOWN
        .iter()
        .find(|(card, name, _)| is_on(card) && *name == test);
    known.map(|(_, _, reason)| *reason)
}

/// Whether a packet may overtake the one before it: while QEMU's virtio-net has no room, one packet waits, and
/// `qemu_net_queue_send` delivers the next one before it.
pub fn overtakes() -> bool {
    is_on("virtio-net")
}

/// Whether packets may come late or twice once the RX ring was full. The card's chunks are all in RX then, and the fault
/// of [`STALE`] leaves the driver ahead of the card.
pub fn disordered_by_full_ring() -> bool {
    is_on("igb")
}
