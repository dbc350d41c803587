//! System calls that rustix lacks, and mappings. Each is wrapped once, here.

mod bpf;
mod kernel;
mod kernel_functions;
#[cfg(feature = "libxdp")]
mod libxdp;
mod link;
mod linux;
mod mapping;
mod prefetch;
pub(crate) mod scm;
mod xdp;

#[cfg(feature = "libxdp")]
pub(crate) use bpf::change_variables;
#[cfg(any(feature = "libxdp", xsk_internals))]
pub(crate) use bpf::map_by_id;
pub(crate) use bpf::{
    BPF_NAME_LEN, Instruction, MapInfo, ProgramInfo, map_info, open_pinned, pin, program_by_id,
    program_info, xdp_link, xdp_link_create, xdp_link_known, xdp_link_update, xdp_links,
    xdp_program_load, xskmap_create, xskmap_insert, xskmap_remove,
};
#[cfg(any(test, xsk_internals))]
pub(crate) use bpf::{
    map_freeze, socket_filter_load, tcx_egress, xdp_link_detach, xdp_program_run,
};
#[cfg(any(test, xsk_internals))]
pub(crate) use kernel::Clock;
pub(crate) use kernel::KernelCounters;
pub(crate) use kernel::{
    Address, Kernel, KernelSocket, Offsets, QueueOwner, Registration, RingKind,
};
pub(crate) use kernel_functions::kernel_functions;
#[cfg(feature = "libxdp")]
pub(crate) use libxdp::{Attachments, Libxdp};
pub(crate) use linux::Linux;
pub(crate) use mapping::{Mapping, page_size};
pub(crate) use prefetch::prefetch;
pub use xdp::TX_METADATA_LEN;
pub(crate) use xdp::{Desc, XDP_PKT_CONTD, XDP_TX_METADATA, open_socket, register, set_tx_budget};

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
