//! bpf(2) for device programs of control groups: load, attach, detach.
//!
//! A manager of nested containers narrows the devices of its own control groups with them. The kernel
//! lets whoever holds such a program attach it to every control group that he can open for reading.
//! So the caller gets no program but a handle, and the broker attaches the program that it stands for:
//! to the caller's own control group or one below it, beside the programs that are there, so that
//! devices can only be taken away. All is undone when the supervised processes have ended, also if the
//! broker is killed: links hold the programs.

mod attr;
mod cgroup;
mod program;
mod sys;

use crate::budget::{Budget, Share, descriptors};
use crate::confine::worker::Worker;
use crate::seccomp::{Answer, Notification};
use crate::supervise::caller::Status;
use crate::supervise::rule::{Condition, Rule};
use crate::supervise::{Call, Handler};
use attr::{ALLOW_MULTI, ALLOW_OVERRIDE, ATTACH, ATTACH_TYPE, Attr, DETACH, LOAD};
use cgroup::Cgroup;
use program::{Program, Request};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name in the policy, in logs and metrics.
pub const NAME: &str = "bpf_cgroup_device";

/// The calls it answers.
pub const RULES: &[Rule] = &[
    Rule::when(libc::SYS_bpf, "bpf", &[Condition::int(0, LOAD)]),
    Rule::when(libc::SYS_bpf, "bpf", &[Condition::int(0, ATTACH)]),
    Rule::when(libc::SYS_bpf, "bpf", &[Condition::int(0, DETACH)]),
];

/// Place of the user id that owns files, in the status.
const FILESYSTEM_ID: usize = 3;
/// Most programs of a session, and most attachments; the kernel has the same limit for a control group.
const MOST: usize = 64;

/// Loads, attaches and detaches device programs of control groups.
#[derive(Debug)]
pub struct BpfCgroup {
    tenant: String,
    worker: Arc<Worker>,
    budget: Arc<Budget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    programs: Vec<(Arc<Program>, Share)>,
    attachments: Vec<Attachment>,
}

/// A program at a control group, until it is dropped.
#[derive(Debug)]
struct Attachment {
    cgroup: u64,
    program: Arc<Program>,
    _link: OwnedFd,
    _share: Share,
}

impl BpfCgroup {
    /// With no programs, for the processes of a tenant.
    pub fn new(tenant: &str, worker: Arc<Worker>, budget: Arc<Budget>) -> Self {
        Self {
            tenant: tenant.to_owned(),
            worker,
            budget,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let target = call.target()?;
        let attr = Attr::copy(target, call.word(1), call.int(2))?;
        let Some(request) = Request::copy(target, &attr)? else {
            return Ok(Answer::Continue);
        };
        call.check_alive()?;
        self.lock().check_number()?;
        let share = self.budget.descriptors(descriptors::PROGRAM)?;
        let loaded = request.load(target, &self.worker, &self.tenant)?;
        let (program, handle) = Program::new(loaded)?;
        let mut state = self.lock();
        state.check_number()?;
        state.programs.push((Arc::new(program), share));
        Ok(Answer::Descriptor {
            fd: handle,
            close_on_exec: true,
        })
    }

    fn attach(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let Some(request) = Attachable::copy(call)? else {
            return Ok(Answer::Continue);
        };
        if request.flags & !(ALLOW_OVERRIDE | ALLOW_MULTI) != 0 {
            return Err(Errno::INVAL);
        }
        let mut state = self.lock();
        let program = state.program(&request.handle).ok_or(Errno::INVAL)?;
        call.check_alive()?;
        let id = request.cgroup.id();
        if state.position(id, &program).is_some() {
            return Err(Errno::INVAL);
        }
        request.cgroup.check_attachable()?;
        // Without ALLOW_MULTI a program takes the place of the one before it: of this session's.
        let kept = |it: &Attachment| it.cgroup != id || request.flags & ALLOW_MULTI != 0;
        if state.attachments.iter().filter(|it| kept(it)).count() >= MOST {
            return Err(Errno::NOMEM);
        }
        let share = self.budget.descriptors(descriptors::LINK)?;
        let link = sys::link(program.fd(), request.cgroup.fd())?;
        state.attachments.retain(kept);
        state.attachments.push(Attachment {
            cgroup: id,
            program,
            _link: link,
            _share: share,
        });
        Ok(Answer::Value(0))
    }

    fn detach(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let Some(request) = Attachable::copy(call)? else {
            return Ok(Answer::Continue);
        };
        call.check_alive()?;
        let mut state = self.lock();
        let program = state.program(&request.handle).ok_or(Errno::NOENT)?;
        let at = state.position(request.cgroup.id(), &program);
        // The link's last descriptor detaches the program.
        drop(state.attachments.remove(at.ok_or(Errno::NOENT)?));
        Ok(Answer::Value(0))
    }
}

impl State {
    /// Refuses more programs than there may be, without those whose handles are closed.
    fn check_number(&mut self) -> Result<(), Errno> {
        self.programs.retain(|(it, _)| it.is_held());
        if self.programs.len() < MOST {
            Ok(())
        } else {
            Err(Errno::NOMEM)
        }
    }

    fn program(&self, handle: &OwnedFd) -> Option<Arc<Program>> {
        let mut programs = self.programs.iter();
        let found = programs.find(|(it, _)| it.is_handle(handle));
        found.map(|(program, _)| Arc::clone(program))
    }

    fn position(&self, cgroup: u64, program: &Arc<Program>) -> Option<usize> {
        let same = |it: &Attachment| it.cgroup == cgroup && Arc::ptr_eq(&it.program, program);
        self.attachments.iter().position(same)
    }
}

/// A program's handle and the control group that it is to be attached to, or detached from.
struct Attachable {
    cgroup: Cgroup,
    handle: OwnedFd,
    flags: u32,
}

impl Attachable {
    /// Copies a call; `None` for another type of attachment.
    fn copy(call: &Call<'_>) -> Result<Option<Self>, Errno> {
        let target = call.target()?;
        let attr = Attr::copy(target, call.word(1), call.int(2))?;
        if attr.u32(8) != ATTACH_TYPE {
            return Ok(None);
        }
        attr.check_zero_from(16, Errno::INVAL)?;
        let directory = target.descriptor(attr.int(0))?;
        let handle = target.descriptor(attr.int(4))?;
        let owner = Status::of(target)?.number("Uid", FILESYSTEM_ID)?;
        Ok(Some(Self {
            cgroup: Cgroup::find(target, &directory, owner)?,
            handle,
            flags: attr.u32(12),
        }))
    }
}

impl Handler for BpfCgroup {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_bpf]
    }

    /// The verifier takes its time, and so does the search for a control group.
    fn is_slow(&self, notification: &Notification) -> bool {
        matches!(notification.args[0] as i32, LOAD | ATTACH | DETACH)
    }

    /// Other commands, types and attachments are left to the next handler and to the kernel, which
    /// loads no program of an unprivileged caller: there is nothing that it could attach.
    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        match call.int(0) {
            LOAD => self.load(call),
            ATTACH => self.attach(call),
            DETACH => self.detach(call),
            _ => Ok(Answer::Continue),
        }
    }
}
