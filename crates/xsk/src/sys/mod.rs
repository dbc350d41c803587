//! System calls that rustix lacks, and mappings. Each is wrapped once, here.

mod bpf;
mod ethtool;
mod mapping;
mod xdp;

pub(crate) use bpf::{
    BPF_NAME_LEN, Instruction, map_info, program_info, xdp_link_create, xdp_link_known,
    xdp_program_load, xskmap_create, xskmap_insert, xskmap_remove,
};
pub(crate) use ethtool::channels;
pub(crate) use mapping::Mapping;
pub(crate) use xdp::{Desc, open_socket, set_tx_budget};

use rustix::io::Errno;

/// A result whose error is the kernel's errno.
pub(crate) type SysResult<T> = Result<T, Errno>;

/// The errno of this thread's last failed call.
fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO);
    Errno::from_raw_os_error(code)
}
