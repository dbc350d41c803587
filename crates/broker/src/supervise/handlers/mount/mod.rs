//! mount(2): filesystems that the policy names.
//!
//! The broker builds the filesystem detached, with the options that it knows, and moves it to the
//! directory that the caller's path means, followed with the caller's user, root and working
//! directory. Not where that would reach beyond the caller: it owns its mount namespace
//! ([`Mounts`](super::super::mounts::Mounts)), and the directory is its own, or it is root there. The host opens no device
//! node there and heeds no set-user-id bit: the filesystem is made in the caller's user namespace, or its mount forbids both.

mod flags;
mod fuse;
mod options;
mod point;
mod request;
mod tmpfs;

use super::super::caller::Place;
use super::super::mounts::Made;
use super::super::rule::Rule;
use super::super::{Call, Handler};
use crate::policy::{FILESYSTEMS, Mounts};
use crate::seccomp::{Answer, Notification};
use flags::Flags;
use fuse::Programs;
use point::{Point, Users};
use request::Request;
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

/// The handler's name.
pub const NAME: &str = "mount";

/// When its calls are notified. Without the newer calls libmount uses mount(2).
pub const RULES: &[Rule] = &[
    Rule::always(libc::SYS_mount, "mount"),
    Rule::fails(libc::SYS_fsopen, "fsopen", Errno::NOSYS),
    Rule::fails(libc::SYS_fspick, "fspick", Errno::NOSYS),
    Rule::fails(libc::SYS_fsconfig, "fsconfig", Errno::NOSYS),
    Rule::fails(libc::SYS_fsmount, "fsmount", Errno::NOSYS),
    Rule::fails(libc::SYS_move_mount, "move_mount", Errno::NOSYS),
    Rule::fails(libc::SYS_open_tree, "open_tree", Errno::NOSYS),
    Rule::fails(libc::SYS_mount_setattr, "mount_setattr", Errno::NOSYS),
];

/// Longest name of a type, and longest options: a page.
const MOST_TYPE: usize = 64;
const MOST_OPTIONS: usize = 4096;

/// Mounts filesystems of the types that the policy names.
#[derive(Debug)]
pub struct Mount {
    granted: Mounts,
    programs: Programs,
    made: Arc<Made>,
}

impl Mount {
    /// Grants these types; `made` are the mounts of the session.
    pub fn new(granted: &Mounts, made: Arc<Made>) -> Self {
        Self {
            granted: granted.clone(),
            programs: Programs::default(),
            made,
        }
    }

    fn kind(&self, name: &CStr) -> Option<Kind<'_>> {
        let name = name.to_str().ok()?;
        // As mount.fuse(8) has it.
        let named = name.strip_prefix("fuse.").unwrap_or(name);
        if let Some(program) = self.granted.fuse.get(named) {
            return Some(Kind::Fuse(program));
        }
        let is_granted = self.granted.filesystems.iter().any(|it| it == name);
        (is_granted && FILESYSTEMS.contains(&name)).then_some(Kind::Tmpfs)
    }
}

/// How a type is mounted.
#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    Tmpfs,
    /// By this program.
    Fuse(&'a Path),
}

impl Handler for Mount {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_mount]
    }

    /// The path may lead to a filesystem that the caller itself serves.
    fn is_slow(&self, notification: &Notification) -> bool {
        Flags::of(notification.args[3]).is_new_mount()
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let flags = Flags::of(call.word(3));
        if !flags.is_new_mount() {
            // Binds, moves and changes of a mount that is there, which the kernel permits by the
            // caller's own privilege. The flags are an argument: they cannot change.
            return Ok(Answer::Continue);
        }
        let target = call.target()?;
        let name = target.read_string(call.word(2), MOST_TYPE)?;
        let Some(kind) = self.kind(&name) else {
            // Also left to the kernel, whatever the name is when it reads it again.
            return Ok(Answer::Continue);
        };
        let path = target.read_string(call.word(1), libc::PATH_MAX as usize)?;
        let optional = |at: usize, most: usize| match call.word(at) {
            0 => Ok(None),
            address => target.read_string(address, most).map(Some),
        };
        let source = optional(0, libc::PATH_MAX as usize)?;
        let options = optional(4, MOST_OPTIONS)?.unwrap_or_default();
        call.describe(format!("{name:?} at {path:?} with {options:?}"));
        let place = Place::of(call, libc::AT_FDCWD)?;
        let users = Users::of(target)?;
        let point = Point::of(target, &users)?;
        call.check_alive()?;
        let directory = point.open(&place, &path)?;
        let request = Request {
            source,
            options,
            flags,
            users,
        };
        match kind {
            Kind::Tmpfs => {
                let mount = tmpfs::build(target, &request)?;
                call.check_alive()?;
                point.mounts().put(&self.made, &mount, &directory)?;
            }
            Kind::Fuse(program) => {
                self.programs.check_number()?;
                let (mount, program) = fuse::serve(call, program, &request, &place)?;
                call.check_alive()?;
                point.mounts().put(&self.made, &mount, &directory)?;
                self.programs.keep(program);
            }
        }
        Ok(Answer::Value(0))
    }
}
