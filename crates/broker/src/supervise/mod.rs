//! Supervised system calls: each notified call goes to the handler of its number.

pub mod caller;
pub mod cgroup;
pub mod filter;
pub mod fuse;
pub mod handlers;
pub mod landlock;
pub mod log;
pub mod metrics;
pub mod mounts;
pub mod oci;
pub mod profile;
pub mod rule;
pub mod run;
pub mod session;
mod sys;

use crate::seccomp::{Answer, Listener, Notification, Target};
use rustix::io::Errno;
use std::cell::{OnceCell, RefCell};

/// A notified call, and the thread that waits for its answer.
#[derive(Debug)]
pub struct Call<'a> {
    /// Where it arrived.
    pub listener: &'a Listener,
    /// Its number and arguments, copied by the kernel: the caller cannot change them.
    pub notification: &'a Notification,
    target: OnceCell<Target>,
    request: RefCell<Option<String>>,
}

impl<'a> Call<'a> {
    /// The call of a notification.
    pub fn new(listener: &'a Listener, notification: &'a Notification) -> Self {
        Self {
            listener,
            notification,
            target: OnceCell::new(),
            request: RefCell::default(),
        }
    }

    /// Describes the request in words, for the log: `character device 1:3 at "/dev/null"`.
    pub fn describe(&self, request: String) {
        self.request.replace(Some(request));
    }

    /// The thread that waits: its memory and descriptors. It is opened when it is first asked for,
    /// which takes longer than all else: a handler that needs no memory never asks.
    ///
    /// # Errors
    ///
    /// `ESRCH` when it is gone, or in a pid namespace that this process does not see.
    pub fn target(&self) -> Result<&Target, Errno> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        let target = Target::open(self.listener, self.notification)?;
        Ok(self.target.get_or_init(|| target))
    }

    /// An argument of 64 bits: a pointer or a size.
    pub fn word(&self, at: usize) -> u64 {
        self.notification.args.get(at).copied().unwrap_or(0)
    }

    /// An argument that the kernel truncates to an int.
    pub fn int(&self, at: usize) -> i32 {
        self.word(at) as i32
    }

    /// Whether it still waits: to be asked after the last copy, before the first effect.
    ///
    /// # Errors
    ///
    /// `ESRCH` when its thread is gone; nobody receives the answer then.
    pub fn check_alive(&self) -> Result<(), Errno> {
        if self.listener.is_valid(self.notification.id) {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }
}

/// Answers some system calls of one supervised process tree. Dropped when that tree has ended, to
/// remove objects that must not outlive it.
pub trait Handler: Send + Sync {
    /// Name in the policy, in logs and metrics.
    fn name(&self) -> &'static str;

    /// The numbers of its calls.
    fn calls(&self) -> &'static [i64];

    /// Whether a call may take longer than some microseconds: it gets a thread of its own then.
    fn is_slow(&self, notification: &Notification) -> bool {
        let _ = notification;
        false
    }

    /// Ends waits for what callers control, such as a connection's other side: those calls fail with `EINTR`.
    /// Called when the session is to stop.
    fn stop(&self) {}

    /// Answers a call. [`Answer::Continue`] leaves it to the tenant's next handler of the same number,
    /// and to the kernel behind the last. All that is read of the caller is copied once, then
    /// [`Call::check_alive`] is asked, then the copies are acted upon.
    ///
    /// # Errors
    ///
    /// The errno that the call fails with.
    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno>;
}
