//! Messages on the broker's sockets: a tenant's request, messages of `weir run`, and the state of
//! a container from its runtime. Any bytes are an error or a message; none may panic, and the
//! descriptors of a message are closed.
#![no_main]

use broker::message;
use broker::supervise::oci;
use libfuzzer_sys::fuzz_target;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use xsk::broker::{Refusal, Request};

/// Beginnings that a search would find late.
const REQUEST: &[u8] = b"weir 2 socket\ndevice=eth0\n";
const STATE: &[u8] = br#"{"ociVersion":"1.0.2","fds":["seccompFd"],"pid":42,"metadata":"policy=web","state":{"id":"box","#;

fuzz_target!(|rest: &[u8]| {
    for message in [rest, &[REQUEST, rest].concat()] {
        request(message);
        text(message);
    }
    if let Some(refusal) = Refusal::read(rest) {
        let plain = |c: char| !c.is_control() || c == '\n';
        assert!(refusal.message().chars().all(plain));
    }
    for message in [rest, &[STATE, rest].concat()] {
        state(message);
    }
});

fn request(message: &[u8]) {
    match Request::read(message) {
        Ok(request) => {
            let again = request.write().expect("it can be written");
            assert_eq!(Request::read(again.as_bytes()).expect("and read"), request);
        }
        // The reply has at most so many bytes, and all of it is text.
        Err(error) => assert!(Refusal::from(&error).write().len() <= Refusal::MOST),
    }
}

fn text(bytes: &[u8]) {
    let (here, there) = UnixDatagram::pair().expect("a pair");
    if there.send(bytes).is_err() {
        return;
    }
    if let Ok(message) = message::receive_text(&here) {
        assert!(message.text.len() <= message::MOST_BYTES && message.fd.is_none());
        assert!(message.value("policy").is_none_or(|name| !name.contains('\n')));
    }
}

/// With a descriptor that is no listener.
fn state(bytes: &[u8]) {
    let (here, mut there) = UnixStream::pair().expect("a pair");
    let Some((first, rest)) = bytes.split_at_checked(1) else {
        return;
    };
    message::send(there.as_fd(), first, &[there.as_fd()]).expect("room");
    there.write_all(rest).expect("room");
    there.shutdown(Shutdown::Write).expect("it is open");
    let container = oci::receive(&here);
    assert!(container.is_err(), "a socket is no listener");
}
