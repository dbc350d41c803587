//! A call's arguments.

use super::flags::Flags;
use super::point::Users;
use std::ffi::CString;

/// Copies of a call's arguments.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) source: Option<CString>,
    pub(super) options: CString,
    pub(super) flags: Flags,
    pub(super) users: Users,
}
