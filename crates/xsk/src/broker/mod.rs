//! Sockets of `weir-broker`: a privileged daemon opens them, for processes without privilege.
//!
//! ```no_run
//! # fn main() -> xsk::Result<()> {
//! let mut socket = xsk::Socket::from_broker("eth0", 2)?;
//! println!("{} {}", socket.queue(), socket.mode());
//! # Ok(())
//! # }
//! ```
//!
//! The broker grants a queue by its policy. The socket is bound, its XDP program attached and its memory
//! populated; the process needs no capability and no memory lock limit. It holds neither the XSKMAP nor
//! the program, and the queue is free again when the last process that holds the socket has closed it.
//!
//! # Protocol
//!
//! A Unix socket of type `SOCK_SEQPACKET`. The broker answers a request by a question, and the answer by the reply:
//!
//! | Message | Text | Descriptors |
//! |---|---|---|
//! | request | `weir 2 socket`, then lines `key=value` (see [`Request`]) | none |
//! | question | `prove`, a space and a number | none |
//! | answer | `proof`, a space and that number | none |
//! | reply | `ok` and a line feed, then the bytes of [`Parts::into_message`] | those of the parts |
//! | refusal, of the request or the answer | `error KIND`, then lines for people | none |
//!
//! The kernel names the sender of each message. The process that connected sends the request's answer itself: one
//! that has become another program since cannot, and so gets nothing by what it has become. The broker's messages
//! come from another process, of the host's root. A client of version 1 is refused (`error unsupported`).
//!
//! [`Parts::into_message`]: crate::Parts::into_message

mod client;
mod refusal;
mod request;

pub use client::DEFAULT_PATH;
pub use refusal::Refusal;
pub use request::Request;
