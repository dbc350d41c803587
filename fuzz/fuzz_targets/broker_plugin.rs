//! The requests of a device-plugin client. Any bytes get a short reply of the protocol; grants are asked
//! of the host in the protocol's order.
#![no_main]

use broker::plugin::{BusyPoll, Conversation, Host, MOST_BYTES, Request};
use libfuzzer_sys::fuzz_target;

/// Requests that a search would find late.
const REQUESTS: &[&[u8]] = &[
    b"/connect,pod",
    b"/version",
    b"/xsk_map_fd,eth0",
    b"/config_busy_poll,20,64",
    b"/fin",
];

/// Checks that it is asked in order.
#[derive(Default)]
struct Order {
    is_admitted: bool,
    has_map: bool,
}

impl Host<()> for Order {
    type Map = ();
    fn admit(&mut self, hostname: &str) -> bool {
        assert!(!self.is_admitted && hostname.len() < MOST_BYTES);
        self.is_admitted = hostname != "stranger";
        self.is_admitted
    }
    fn map(&mut self, device: &str) -> Option<()> {
        assert!(self.is_admitted && (1..16).contains(&device.len()) && !device.contains('/'));
        self.has_map |= device == "eth0";
        (device == "eth0").then_some(())
    }
    fn busy_poll(&mut self, device: &str, _: BusyPoll, (): ()) -> bool {
        assert!(self.has_map && device == "eth0");
        true
    }
}

// Messages with a byte 0xff between them: the number of a request of the list, or the bytes themselves.
fuzz_target!(|bytes: &[u8]| {
    let mut conversation = Conversation::default();
    let mut host = Order::default();
    for message in bytes.split(|&byte| byte == 0xff) {
        let request = match message {
            [choice, ..] if usize::from(*choice) < REQUESTS.len() => REQUESTS[usize::from(*choice)],
            other => other,
        };
        let socket = (request.len() % 2 == 0).then_some(());
        let reply = conversation.answer(&mut host, request, socket);
        assert!(reply.text().len() < 64 && reply.text().is_ascii());
        let is_known = Request::parse(request).is_some();
        assert!(is_known || reply.is_last(), "{request:?} got {}", reply.text());
        if reply.is_last() {
            return;
        }
    }
});
