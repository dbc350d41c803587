//! Filesystems that a FUSE program serves, from an image.
//!
//! The broker makes the mount, and the program only answers on its descriptor: `PROGRAM IMAGE
//! /dev/fd/N -f`, as libfuse 3.3 and later understand it. The image is opened with the caller's rights.
//! The program is the host's, not one of the caller's root, which could be anything and would run
//! outside the caller's filter. It has the caller's user, groups, limits and control groups, no capability,
//! by Landlock no file but the image and the host's libraries, no socket, and pid and network namespaces of
//! its own: an image that takes it over gains nothing, and its processes end with the program.

mod device;
mod program;
mod sys;

use super::super::super::Call;
use super::super::super::caller::Place;
use super::request::Request;
use device::Device;
use program::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
pub(super) use sys::in_user_namespace;

/// Most programs of a session.
const MOST: usize = 64;
/// Time for a program to read its image.
const MOST_START: Duration = Duration::from_secs(10);

/// The programs that serve; dropped, they are killed.
#[derive(Debug, Default)]
pub(super) struct Programs(Mutex<Vec<Program>>);

impl Programs {
    /// Refuses more than there may be.
    pub(super) fn check_number(&self) -> Result<(), Errno> {
        let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        programs.retain_mut(Program::is_running);
        if programs.len() < MOST {
            Ok(())
        } else {
            Err(Errno::USERS)
        }
    }

    pub(super) fn keep(&self, program: Program) {
        let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        programs.push(program);
    }
}

/// Makes a mount and starts the program that serves it.
pub(super) fn serve(
    call: &Call<'_>,
    path: &Path,
    request: &Request,
    place: &Place,
) -> Result<(OwnedFd, Program), Errno> {
    let is_read_only = is_read_only(request)? || request.flags.is_read_only();
    let image = open_image(request, place, is_read_only)?;
    let target = call.target()?;
    let Device { fuse, mount } = Device::make(target, request, is_read_only)?;
    call.check_alive()?;
    let mut program = Program::start(path, &image, &fuse, (target, place), is_read_only)?;
    wait_for(&mut program, &fuse)?;
    Ok((mount, program))
}

/// Programs' options name files and commands: the caller's are not passed on.
fn is_read_only(request: &Request) -> Result<bool, Errno> {
    let options = request.options.to_bytes();
    let mut is_read_only = false;
    for option in options.split(|byte| *byte == b',') {
        match option {
            b"" | b"loop" => {}
            b"rw" => is_read_only = false,
            b"ro" => is_read_only = true,
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(is_read_only)
}

/// Opens the image as the caller could.
fn open_image(request: &Request, place: &Place, is_read_only: bool) -> Result<OwnedFd, Errno> {
    let path = request.source.as_ref().ok_or(Errno::INVAL)?;
    let access = if is_read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    let image = place.act(CapabilitySet::empty(), || {
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_MAGICLINKS;
        openat2(CWD, path, flags, Mode::empty(), resolve)
    })?;
    match FileType::from_raw_mode(fstat(&image)?.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => Ok(image),
        _ => Err(Errno::NOTBLK),
    }
}

/// Waits until the program takes the kernel's first request; it ends before where it cannot read the
/// image.
fn wait_for(program: &mut Program, fuse: &OwnedFd) -> Result<(), Errno> {
    let end = Instant::now() + MOST_START;
    while is_waiting(fuse) {
        if !program.is_running() {
            return Err(Errno::INVAL);
        }
        if Instant::now() > end {
            return Err(Errno::TIMEDOUT);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether a request waits that no program has read.
fn is_waiting(fuse: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fuse, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
