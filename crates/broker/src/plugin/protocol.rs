//! The device-plugin protocol without its socket: requests, replies, and their order.
//!
//! | Request | Reply |
//! |---|---|
//! | `/connect,HOSTNAME`, the first | `/host_ok`; or `/host_nak`, and the end |
//! | `/version` | `0.1` |
//! | `/xsk_map_fd,DEVICE` | `/fd_ack` with an XSKMAP; or `/fd_nak`, and the end |
//! | `/config_busy_poll,MICROSECONDS,PACKETS` with a socket | `/config_busy_poll_ack` or `/config_busy_poll_nak` |
//! | `/fin` | `/fin_ack`, and the end |
//! | another | `/nak`, and the end |
//!
//! Both sides send ASCII text without a terminator, one message each. DPDK's driver takes any reply that
//! sorts behind the one expected for success, and descriptor 0 for the map then; only the end of the
//! connection makes it fail. CNDP's library knows the replies to its own requests and no others.

/// Most bytes of a request: clients have buffers of 64, and a larger one here detects longer requests.
pub const MOST_BYTES: usize = 128;

/// Longest name of a network device (`IFNAMSIZ` without the final zero).
const MOST_NAME: usize = 15;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'r> {
    /// The first one. Its hostname is anything, and proves nothing.
    Connect(&'r str),
    /// The version of the protocol.
    Version,
    /// The XSKMAP of a device.
    Map(&'r str),
    /// Busy polling of the socket that comes with it.
    BusyPoll(BusyPoll),
    /// The end.
    Fin,
}

/// Busy polling as a client wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// `SO_BUSY_POLL`, in microseconds.
    pub usecs: u32,
    /// `SO_BUSY_POLL_BUDGET`, in packets.
    pub budget: u16,
}

impl<'r> Request<'r> {
    /// Reads a request; `None` for one that the protocol does not have.
    pub fn parse(bytes: &'r [u8]) -> Option<Self> {
        // Some clients send the final zero of the text as well.
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes).ok()?;
        if bytes.len() >= MOST_BYTES || text.contains(|c: char| c.is_control()) {
            return None;
        }
        let (word, value) = text
            .split_once(',')
            .map_or((text, None), |(word, value)| (word, Some(value)));
        match (word, value) {
            ("/connect", Some(hostname)) => Some(Self::Connect(hostname)),
            ("/version", None) => Some(Self::Version),
            ("/xsk_map_fd", Some(device)) if is_device(device) => Some(Self::Map(device)),
            ("/config_busy_poll", Some(values)) => BusyPoll::parse(values).map(Self::BusyPoll),
            ("/fin", None) => Some(Self::Fin),
            _ => None,
        }
    }
}

/// The kernel's rule (`dev_valid_name`).
fn is_device(name: &str) -> bool {
    (1..=MOST_NAME).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace())
}

impl BusyPoll {
    fn parse(values: &str) -> Option<Self> {
        let (usecs, budget) = values.split_once(',')?;
        Some(Self {
            usecs: number(usecs)?,
            budget: number(budget)?,
        })
    }
}

/// Digits alone; [`str::parse`] also takes a plus sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// A reply, with the map where it gives one.
#[derive(Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after its text")]
pub enum Reply<M> {
    HostOk,
    HostNak,
    Version,
    FdAck(M),
    FdNak,
    BusyPollAck,
    BusyPollNak,
    FinAck,
    Nak,
}

impl<M> Reply<M> {
    /// Its bytes. DPDK's buffer has 128, and no room for a final zero if they are all used.
    pub fn text(&self) -> &'static str {
        match self {
            Self::HostOk => "/host_ok",
            Self::HostNak => "/host_nak",
            Self::Version => "0.1",
            Self::FdAck(_) => "/fd_ack",
            Self::FdNak => "/fd_nak",
            Self::BusyPollAck => "/config_busy_poll_ack",
            Self::BusyPollNak => "/config_busy_poll_nak",
            Self::FinAck => "/fin_ack",
            Self::Nak => "/nak",
        }
    }

    /// Whether it is the connection's last. `/config_busy_poll_nak` is none: CNDP alone asks for that,
    /// understands it, and goes on with its next device.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::HostNak | Self::FdNak | Self::FinAck | Self::Nak)
    }
}

/// Who decides about requests.
pub trait Host<S> {
    /// An XSKMAP.
    type Map;
    /// Whether the client is a tenant of a device that it can ask for here.
    fn admit(&mut self, hostname: &str) -> bool;
    /// The map of a device.
    fn map(&mut self, device: &str) -> Option<Self::Map>;
    /// Sets busy polling of a socket on a device; whether it could.
    fn busy_poll(&mut self, device: &str, wanted: BusyPoll, socket: S) -> bool;
}

/// A client's requests so far.
#[derive(Debug, Default)]
pub struct Conversation {
    is_admitted: bool,
    /// The device whose map was given last.
    device: Option<String>,
}

impl Conversation {
    /// The reply to a request, with the socket that came along.
    pub fn answer<S, H: Host<S>>(
        &mut self,
        host: &mut H,
        request: &[u8],
        socket: Option<S>,
    ) -> Reply<H::Map> {
        match (Request::parse(request), self.is_admitted) {
            (Some(Request::Connect(hostname)), false) => {
                self.is_admitted = host.admit(hostname);
                if self.is_admitted {
                    Reply::HostOk
                } else {
                    Reply::HostNak
                }
            }
            // The greeting is missing, which each client knows this reply to.
            (_, false) => Reply::HostNak,
            (Some(Request::Version), true) => Reply::Version,
            (Some(Request::Map(device)), true) => self.give(host, device),
            (Some(Request::BusyPoll(wanted)), true) => self.configure(host, wanted, socket),
            (Some(Request::Fin), true) => Reply::FinAck,
            (Some(Request::Connect(_)) | None, true) => Reply::Nak,
        }
    }

    fn give<S, H: Host<S>>(&mut self, host: &mut H, device: &str) -> Reply<H::Map> {
        let Some(map) = host.map(device) else {
            return Reply::FdNak;
        };
        self.device = Some(device.to_owned());
        Reply::FdAck(map)
    }

    fn configure<S, H: Host<S>>(
        &self,
        host: &mut H,
        wanted: BusyPoll,
        socket: Option<S>,
    ) -> Reply<H::Map> {
        let (Some(device), Some(socket)) = (&self.device, socket) else {
            return Reply::BusyPollNak;
        };
        if host.busy_poll(device, wanted, socket) {
            Reply::BusyPollAck
        } else {
            Reply::BusyPollNak
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that has `eth0`, and maps that are numbers.
    struct Fake {
        is_tenant: bool,
        busy_poll: bool,
    }

    impl Host<u8> for Fake {
        type Map = u32;
        fn admit(&mut self, _: &str) -> bool {
            self.is_tenant
        }
        fn map(&mut self, device: &str) -> Option<u32> {
            (device == "eth0").then_some(7)
        }
        fn busy_poll(&mut self, device: &str, wanted: BusyPoll, _: u8) -> bool {
            assert_eq!((device, wanted.usecs, wanted.budget), ("eth0", 20, 64));
            self.busy_poll
        }
    }

    /// The replies to requests, each with a socket, until one is the last.
    fn talk(requests: &[&str], mut host: Fake) -> Vec<&'static str> {
        let mut conversation = Conversation::default();
        let mut replies = Vec::new();
        for request in requests {
            let reply = conversation.answer(&mut host, request.as_bytes(), Some(0));
            replies.push(reply.text());
            if reply.is_last() {
                break;
            }
        }
        replies
    }

    const TENANT: Fake = Fake {
        is_tenant: true,
        busy_poll: true,
    };

    #[test]
    fn requests_are_read() {
        let busy_poll = |usecs, budget| Some(Request::BusyPoll(BusyPoll { usecs, budget }));
        for (text, expected) in [
            ("/connect,pod-1", Some(Request::Connect("pod-1"))),
            ("/connect,", Some(Request::Connect(""))),
            ("/connect,a,b", Some(Request::Connect("a,b"))),
            ("/version", Some(Request::Version)),
            ("/version\0", Some(Request::Version)),
            ("/xsk_map_fd,eth0", Some(Request::Map("eth0"))),
            ("/config_busy_poll,20,64", busy_poll(20, 64)),
            (
                "/config_busy_poll,4294967295,65535",
                busy_poll(u32::MAX, u16::MAX),
            ),
            ("/fin", Some(Request::Fin)),
        ] {
            assert_eq!(Request::parse(text.as_bytes()), expected, "{text}");
        }
        let long = format!("/connect,{}", "x".repeat(MOST_BYTES));
        for text in [
            "",
            "/",
            "connect,pod",
            "/connect",
            "/version,1",
            "/fin,",
            "/FIN",
            "/fin\n",
            "/fin\0\0",
            "/xsk_map_fd",
            "/xsk_map_fd,",
            "/xsk_map_fd,../lo",
            "/xsk_map_fd,..",
            "/xsk_map_fd,a b",
            "/xsk_map_fd,sixteen-letters-",
            "/config_busy_poll",
            "/config_busy_poll,20",
            "/config_busy_poll,20,64,1",
            "/config_busy_poll,-1,64",
            "/config_busy_poll,+1,64",
            "/config_busy_poll,20,65536",
            "/config_busy_poll,4294967296,1",
            "/config_busy_poll,,",
            &long,
        ] {
            assert_eq!(Request::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Request::parse(b"/connect,\xff"), None);
    }

    #[test]
    fn dpdk_and_cndp_get_what_they_expect() {
        let dpdk = [
            "/connect,pod",
            "/version",
            "/xsk_map_fd,eth0",
            "/fin",
            "/fin",
        ];
        assert_eq!(
            talk(&dpdk, TENANT),
            ["/host_ok", "0.1", "/fd_ack", "/fin_ack"]
        );
        let cndp = [
            "/connect,pod",
            "/xsk_map_fd,eth0",
            "/config_busy_poll,20,64",
            "/xsk_map_fd,eth0",
            "/fin",
        ];
        let replies = [
            "/host_ok",
            "/fd_ack",
            "/config_busy_poll_ack",
            "/fd_ack",
            "/fin_ack",
        ];
        assert_eq!(talk(&cndp, TENANT), replies);
        let without = Fake {
            busy_poll: false,
            ..TENANT
        };
        let replies = [
            "/host_ok",
            "/fd_ack",
            "/config_busy_poll_nak",
            "/fd_ack",
            "/fin_ack",
        ];
        assert_eq!(talk(&cndp, without), replies);
    }

    #[test]
    fn a_refusal_is_the_last_word() {
        let stranger = Fake {
            is_tenant: false,
            busy_poll: false,
        };
        assert_eq!(talk(&["/connect,pod", "/version"], stranger), ["/host_nak"]);
        for first in ["/version", "/xsk_map_fd,eth0", "/fin", "nonsense", ""] {
            assert_eq!(talk(&[first, "/version"], TENANT), ["/host_nak"], "{first}");
        }
        for (request, reply) in [
            ("/xsk_map_fd,eth1", "/fd_nak"),
            ("/xsk_socket", "/nak"),
            ("/connect,pod", "/nak"),
            ("nonsense", "/nak"),
        ] {
            assert_eq!(
                talk(&["/connect,pod", request, "/version"], TENANT),
                ["/host_ok", reply]
            );
        }
    }

    #[test]
    fn busy_polling_needs_a_map_and_a_socket() {
        let request = "/config_busy_poll,20,64";
        let replies = talk(&["/connect,pod", request], TENANT);
        assert_eq!(replies, ["/host_ok", "/config_busy_poll_nak"]);
        let mut conversation = Conversation::default();
        let mut host = TENANT;
        for request in ["/connect,pod", "/xsk_map_fd,eth0"] {
            conversation.answer(&mut host, request.as_bytes(), None);
        }
        let reply = conversation.answer(&mut host, request.as_bytes(), None);
        assert_eq!(reply.text(), "/config_busy_poll_nak");
    }

    #[test]
    fn replies_are_short() {
        for reply in [Reply::FdAck(()), Reply::BusyPollAck, Reply::BusyPollNak] {
            assert!(reply.text().len() < 64);
        }
    }
}
