//! bpf(2).

mod attr;
mod btf;
mod info;
pub(super) mod link;
mod map;
mod program;

use super::session::Session;
use super::sys;
use crate::seccomp::Answer;
use crate::supervise::Call;
use attr::Attr;
use rustix::io::Errno;

/// Answers the commands that need a privilege, or return information on a program. All others the
/// kernel judges by the descriptors and the rights that the caller has; it has no descriptor of an XDP program.
pub(super) fn handle(session: &Session, call: &Call<'_>) -> Result<Answer, Errno> {
    match call.int(0) {
        sys::MAP_CREATE => map::create(session, call, &Attr::copy(call)?),
        sys::MAP_GET_FD_BY_ID => map::by_id(session, call, &Attr::copy(call)?),
        sys::PROG_LOAD => program::load(session, call, &Attr::copy(call)?),
        sys::PROG_GET_FD_BY_ID => program::by_id(session, call, &Attr::copy(call)?),
        sys::OBJ_GET_INFO_BY_FD => info::handle(session, call, &Attr::copy(call)?),
        sys::BTF_LOAD => btf::load(session, call, &Attr::copy(call)?),
        sys::BTF_GET_FD_BY_ID => btf::by_id(session, call, &Attr::copy(call)?),
        sys::LINK_CREATE => link::create(session, call, &Attr::copy(call)?),
        _ => Ok(Answer::Continue),
    }
}
