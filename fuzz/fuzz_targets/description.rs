//! The description of a socket from another process. Any bytes are an error here, for want of
//! descriptors; none may panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xsk::{ErrorKind, Parts};

/// The first bytes, which a search would find late.
const MAGIC_AND_VERSION: &[u8] = b"xsk\0\x05\0\0\0";

fuzz_target!(|rest: &[u8]| {
    let length = MAGIC_AND_VERSION.len() + 4 + rest.len();
    let message = [MAGIC_AND_VERSION, &(length as u32).to_le_bytes(), rest].concat();
    for message in [rest, &message] {
        let error = Parts::from_message(message, Vec::new()).expect_err("no descriptors");
        // `Foreign`: all but the descriptors is there.
        let expected = [
            ErrorKind::InvalidConfig,
            ErrorKind::Unsupported,
            ErrorKind::Foreign,
        ];
        assert!(expected.contains(&error.kind()), "{error}");
    }
});
