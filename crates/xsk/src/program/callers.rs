//! An XDP program that the caller has loaded.

use super::Program;
use crate::device::{AttachMode, Device};
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A loaded XDP program, and the XSKMAP that it redirects to.
#[derive(Debug)]
pub(crate) struct CallersProgram {
    program: OwnedFd,
    map: OwnedFd,
}

impl CallersProgram {
    pub(crate) fn new(program: OwnedFd, map: OwnedFd) -> Self {
        Self { program, map }
    }

    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Attaches it as the built-in program is attached.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Foreign`] when it is no XDP program, does not use the map, or is attached to
    /// another device; else those of the built-in program.
    pub(crate) fn attach(
        &self,
        device: &Device,
        mode: AttachMode,
        patience: Duration,
    ) -> Result<Program> {
        self.check(device)?;
        let copied = rustix::io::fcntl_dupfd_cloexec(&self.map, 0);
        let map = copied
            .map_err(|errno| Error::os(ErrorKind::Os, errno, "copying the XSKMAP's descriptor"))?;
        Program::attach_loaded(device, mode, patience, map, self.program.as_fd())
    }

    fn check(&self, device: &Device) -> Result<()> {
        let foreign = |message: String| Err(Error::new(ErrorKind::Foreign, message));
        let info = sys::program_info(self.program.as_fd()).map_err(|errno| {
            let message = "the XDP program given is not a BPF program: give the descriptor that loading it returned";
            Error::os(ErrorKind::Foreign, errno, message)
        })?;
        if !info.is_xdp {
            return foreign(
                "the program given is not an XDP program: load one of type BPF_PROG_TYPE_XDP, in libbpf's terms of section \"xdp\"".into(),
            );
        }
        let name = info.name();
        let map = sys::map_info(self.map()).map_err(|errno| {
            Error::os(ErrorKind::Foreign, errno, "the map given is not a BPF map")
        })?;
        if !info.map_ids.contains(&map.id) {
            return foreign(format!(
                "the XDP program {name} (id {}) does not use the XSKMAP given (id {}), but the maps {:?}: give the one that it redirects to",
                info.id, map.id, info.map_ids
            ));
        }
        match sys::xdp_links(info.id).find(|(ifindex, _)| *ifindex != device.index) {
            Some((other, _)) => foreign(format!(
                "the XDP program {name} (id {}) is attached to another device (index {other}) too, whose packets would be lost in this socket's slot: load it once for each device, each with an XSKMAP of its own",
                info.id
            )),
            None => Ok(()),
        }
    }
}
