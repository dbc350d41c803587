//! How an XDP program is removed from its device.

use super::{AttachMode, AttachedProgram, Device};
use crate::sys;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The link that holds a program.
struct Holder {
    /// Its id, as in `bpftool link`.
    link: u32,
    /// A process that has it open, by number and name.
    process: Option<(u32, String)>,
}

impl AttachedProgram {
    /// How to remove it from `device`: by the link that holds it, and the process that has that, as far as this
    /// process may see them; a program that no link holds by `ip link`. (The kernel removes neither in the other way.)
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// let device = xsk::Device::lookup("eth0")?;
    /// for program in &device.programs {
    ///     println!("{program}: {}", program.removal(&device));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn removal(&self, device: &Device) -> String {
        let mode = match self.mode {
            AttachMode::Skb => "xdpgeneric",
            AttachMode::Driver => "xdpdrv",
            AttachMode::Hardware => "xdpoffload",
        };
        let off = format!("`ip link set dev {} {mode} off`", device.name);
        // Who may not read the program's name may list no links either.
        if self.name.is_none() {
            return format!(
                "end the process that holds it, which `bpftool link` shows to root, or remove it with {off} if none does"
            );
        }
        match self.holder(device.index) {
            Some(Holder {
                link,
                process: Some((pid, name)),
            }) => format!(
                "end process {pid} ({name}), which holds it by link {link}, or detach it with `bpftool link detach id {link}`"
            ),
            Some(Holder { link, .. }) => format!(
                "link {link} holds it, which is pinned or of a process that cannot be seen here: detach it with `bpftool link detach id {link}`"
            ),
            None => format!("remove it with {off}"),
        }
    }

    fn holder(&self, ifindex: u32) -> Option<Holder> {
        let (_, link) = sys::xdp_links(self.id).find(|(device, _)| *device == ifindex)?;
        let link = sys::xdp_link(link.as_fd()).ok()??.id;
        Some(Holder {
            link,
            process: process_of(link),
        })
    }
}

/// The first process that has this link open. Those that may not be looked at are left out.
fn process_of(link: u32) -> Option<(u32, String)> {
    entries(Path::new("/proc")).find_map(|process| {
        let pid = process.file_name()?.to_str()?.parse().ok()?;
        entries(&process.join("fd"))
            .any(|file| is_link(&process, &file, link))
            .then(|| (pid, name_of(&process)))
    })
}

fn name_of(process: &Path) -> String {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Whether a descriptor is this link, by the text of `bpf_link_show_fdinfo` (`kernel/bpf/syscall.c`).
fn is_link(process: &Path, file: &Path, link: u32) -> bool {
    // `bpf_link`, or `bpf-link` before.
    let target = fs::read_link(file).unwrap_or_default();
    let is_a_link = target.to_string_lossy().starts_with("anon_inode:bpf");
    let text = || {
        let info = process.join("fdinfo").join(file.file_name()?);
        fs::read_to_string(info).ok()
    };
    let id = format!("link_id:\t{link}");
    is_a_link && text().is_some_and(|text| text.lines().any(|line| line == id))
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
