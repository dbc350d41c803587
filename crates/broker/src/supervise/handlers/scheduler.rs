//! `sched_setscheduler(2)`: real-time priorities up to a limit.

use super::super::caller::{Status, translate_pid};
use super::super::rule::Rule;
use super::super::{Call, Handler, sys};
use crate::seccomp::Answer;
use rustix::io::Errno;

/// The handler's name.
pub const NAME: &str = "sched_setscheduler";

/// When its calls are notified.
pub const RULES: &[Rule] = &[Rule::always(libc::SYS_sched_setscheduler, NAME)];

/// `EUID` in the field `Uid`.
const EFFECTIVE: usize = 1;

/// Most processes between a thread and the caller, of which it descends.
const MOST_ANCESTORS: usize = 256;

/// Sets the policies `SCHED_FIFO` and `SCHED_RR` for the caller's process and its descendants. The
/// others need no privilege.
#[derive(Debug)]
pub struct Scheduler {
    highest: i32,
}

impl Scheduler {
    /// Grants priorities up to this one.
    pub fn new(highest: u8) -> Self {
        Self {
            highest: highest.into(),
        }
    }
}

impl Handler for Scheduler {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_sched_setscheduler]
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let (thread, policy) = (call.int(0), call.int(1));
        if !matches!(
            policy & !libc::SCHED_RESET_ON_FORK,
            libc::SCHED_FIFO | libc::SCHED_RR
        ) {
            return Ok(Answer::Continue);
        }
        let target = call.target()?;
        let mut priority = [0; 4];
        target.read(call.word(2), &mut priority)?;
        let priority = i32::from_ne_bytes(priority);
        call.describe(format!(
            "policy {policy:#x}, priority {priority} for thread {thread}"
        ));
        if !(1..=99).contains(&priority) || thread < 0 {
            return Err(Errno::INVAL);
        }
        if priority > self.highest {
            return Err(Errno::PERM);
        }
        let thread = if thread == 0 {
            target.tid()
        } else {
            let thread = translate_pid(target, thread)?;
            check_descends(thread, &Status::of(target)?)?;
            thread
        };
        call.check_alive()?;
        sys::set_scheduler(thread, policy, priority)?;
        Ok(Answer::Value(0))
    }
}

/// Whether a thread belongs to the caller's process or to one that descends of it, with the caller's
/// user. By ids: a thread that ends right now could give its id to another, which would have to be
/// the very next of all ids.
fn check_descends(thread: u32, caller: &Status) -> Result<(), Errno> {
    let process = caller.number("Tgid", 0)?;
    let mut status = Status::of_thread(thread)?;
    if status.number("Uid", EFFECTIVE)? != caller.number("Uid", EFFECTIVE)? {
        return Err(Errno::PERM);
    }
    for _ in 0..MOST_ANCESTORS {
        if status.number("Tgid", 0)? == process {
            return Ok(());
        }
        match status.number("PPid", 0)? {
            0 | 1 => break,
            parent => status = Status::of_thread(parent)?,
        }
    }
    Err(Errno::PERM)
}
