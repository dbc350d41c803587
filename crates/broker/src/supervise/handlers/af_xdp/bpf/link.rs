//! Attaching programs to devices, by `BPF_LINK_CREATE` and as netlink does.

use super::super::objects::{Attachment, Objects, Program};
use super::super::place::Place;
use super::super::session::{Session, has_mode};
use super::super::sys;
use super::attr::Attr;
use crate::budget::{Object, descriptors};
use crate::policy::{DeviceGrant, Mode};
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

/// `XDP_FLAGS_…`.
const NO_EXIST: u32 = 1;
const SKB: u32 = 2;
const DRIVER: u32 = 4;
const REPLACE: u32 = 16;

/// A change of a device's program as netlink has it; the descriptors are duplicates of the caller's.
#[derive(Debug)]
pub(in super::super) struct Change<'a> {
    pub(in super::super) ifindex: u32,
    /// None detaches.
    pub(in super::super) program: Option<BorrowedFd<'a>>,
    pub(in super::super) flags: u32,
    pub(in super::super) expected: Option<BorrowedFd<'a>>,
}

/// `BPF_LINK_CREATE`. Never the kernel's to run, which asks no privilege of who has a program's
/// descriptor.
pub(super) fn create(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    attr.check_end(16)?;
    if attr.word(8) != sys::ATTACH_XDP {
        return Err(Errno::PERM);
    }
    let target = call.target()?;
    let (ifindex, flags) = (attr.word(4), attr.word(12));
    let program = target.descriptor(attr.int(0))?;
    let place = session.place(target)?;
    check_device(session, call, &place, ifindex, flags)?;
    let mut objects = session.objects();
    let program = objects.program(program.as_fd()).ok_or(Errno::PERM)?;
    objects.check_links()?;
    let room = objects.reserve(Object::Link)?;
    call.check_alive()?;
    let fd = place.act(|| sys::link_create(program.fd.as_fd(), ifindex, flags))?;
    room.fill(sys::link_info(fd.as_fd())?.id);
    objects.add_link(fd.as_fd())?;
    Ok(Answer::Descriptor {
        fd,
        close_on_exec: true,
    })
}

/// Attaches, replaces or detaches the session's program of a device.
///
/// # Errors
///
/// `EPERM` for a device that is not granted, and for attachments of others.
pub(in super::super) fn change(
    session: &Session,
    call: &Call<'_>,
    place: &Place,
    change: &Change<'_>,
) -> Result<(), Errno> {
    if change.flags & !(NO_EXIST | SKB | DRIVER | REPLACE) != 0 {
        return Err(Errno::INVAL);
    }
    let mode = change.flags & (SKB | DRIVER);
    check_device(session, call, place, change.ifindex, mode)?;
    let mut objects = session.objects();
    let find = |fd: Option<BorrowedFd<'_>>| {
        let program = |fd| objects.program(fd).ok_or(Errno::PERM);
        fd.map(program).transpose()
    };
    let (program, expected) = (find(change.program)?, find(change.expected)?);
    let key = (place.identity(), change.ifindex);
    let mut attachments = objects.attachments.iter();
    let at = attachments.position(|it| (it.place, it.ifindex) == key);
    call.check_alive()?;
    match (program, at) {
        (None, None) => Err(Errno::PERM),
        (Some(program), None) if expected.is_none() => {
            objects.check_links()?;
            let room = objects.reserve(Object::Link)?;
            let share = objects.descriptors(descriptors::LINK)?;
            let link = place.act(|| sys::link_create(program.fd.as_fd(), change.ifindex, mode))?;
            room.fill(sys::link_info(link.as_fd())?.id);
            objects.attachments.push(Attachment {
                _share: share,
                place: key.0,
                ifindex: change.ifindex,
                link,
                program,
            });
            Ok(())
        }
        (Some(_), None) => Err(Errno::EXIST),
        (program, Some(at)) => replace(&mut objects, at, program, expected.as_ref(), change.flags),
    }
}

/// Replaces or detaches a program of the session; it must be `expected`, where that is given.
fn replace(
    objects: &mut Objects,
    at: usize,
    program: Option<Arc<Program>>,
    expected: Option<&Arc<Program>>,
    flags: u32,
) -> Result<(), Errno> {
    let attachment = objects.attachments.get_mut(at).ok_or(Errno::INVAL)?;
    if expected.is_some_and(|expected| expected.id != attachment.program.id) {
        return Err(Errno::EXIST);
    }
    match program {
        None => {
            let attachment = objects.attachments.swap_remove(at);
            sys::link_detach(attachment.link.as_fd())
        }
        Some(_) if flags & NO_EXIST != 0 => Err(Errno::BUSY),
        Some(program) => {
            let link = attachment.link.as_fd();
            sys::link_update(link, program.fd.as_fd(), attachment.program.fd.as_fd())?;
            attachment.program = program;
            Ok(())
        }
    }
}

/// Refuses a device, or a mode of it, that is not granted.
fn check_device(
    session: &Session,
    call: &Call<'_>,
    place: &Place,
    ifindex: u32,
    mode: u32,
) -> Result<(), Errno> {
    let device = place.device(ifindex)?;
    call.describe(format!("the program of {device}"));
    let grants = session.grants(place, ifindex);
    if grants.into_iter().any(|grant| allows(grant, mode)) {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// A grant with a filter allows no program of the caller's, which would pass by it.
fn allows(grant: &DeviceGrant, mode: u32) -> bool {
    let driver = has_mode(grant, Mode::Driver) || has_mode(grant, Mode::ZeroCopy);
    let skb = has_mode(grant, Mode::Skb);
    let mode = match mode {
        0 => driver && skb,
        DRIVER => driver,
        SKB => skb,
        _ => false,
    };
    mode && grant.rx && grant.filter.is_empty()
}
