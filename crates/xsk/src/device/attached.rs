//! XDP programs attached to a device.

use crate::sys::{self, ProgramInfo};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::AsFd;

/// The place in the receive path at which an XDP program runs.
///
/// ```
/// assert_eq!(xsk::AttachMode::Skb.to_string(), "generic (skb)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachMode {
    /// Generic XDP: behind the driver, on socket buffers. Any device.
    Skb,
    /// Native XDP: in the driver.
    Driver,
    /// Offloaded XDP: on the network card.
    Hardware,
}

impl AttachMode {
    /// `XDP_FLAGS_SKB_MODE` or `XDP_FLAGS_DRV_MODE` (`include/uapi/linux/if_link.h`).
    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Skb => 1 << 1,
            Self::Driver | Self::Hardware => 1 << 2,
        }
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skb => "generic (skb)",
            Self::Driver => "native (driver)",
            Self::Hardware => "offloaded (hardware)",
        })
    }
}

/// An XDP program attached to a [`Device`](crate::Device).
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// for program in xsk::Device::lookup("lo")?.programs {
///     println!("{program}"); // program id 7 name xsk_redirect tag …, generic (skb)
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedProgram {
    /// The place at which it runs.
    pub mode: AttachMode,
    /// Its id, as in `bpftool prog show id ID`.
    pub id: u32,
    /// Its name; `None` without the permission to read it (`CAP_SYS_ADMIN` or `CAP_BPF`).
    pub name: Option<String>,
    /// Its tag, a hash of its instructions, in hexadecimal; `None` as for the name.
    pub tag: Option<String>,
}

impl AttachedProgram {
    /// `None` for a program that is gone since the kernel named its id.
    pub(super) fn lookup(mode: AttachMode, id: u32) -> Option<Self> {
        let info = sys::program_by_id(id).and_then(|program| sys::program_info(program.as_fd()));
        if matches!(info, Err(Errno::NOENT)) {
            return None;
        }
        let info = info.ok();
        Some(Self {
            mode,
            id,
            name: info.as_ref().map(ProgramInfo::name),
            tag: info.as_ref().map(ProgramInfo::tag),
        })
    }

    /// Whether it may be this library's program, whose owner may be closing it. True without the
    /// permission to read its name.
    pub(crate) fn may_be_ours(&self) -> bool {
        self.name
            .as_deref()
            .is_none_or(|name| name == "xsk_redirect")
    }
}

impl fmt::Display for AttachedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self
            .name
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("(no name)");
        let tag = self.tag.as_deref().unwrap_or("unknown");
        write!(
            f,
            "program id {} name {name} tag {tag}, {}",
            self.id, self.mode
        )
    }
}
