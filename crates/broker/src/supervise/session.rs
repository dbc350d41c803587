//! The supervision of one listener's tasks.

use super::log::{Decision, Log};
use super::metrics::{HandlerMetrics, Metrics, Outcome};
use super::{Call, Handler, filter, landlock};
use crate::budget::Budget;
use crate::seccomp::{Answer, Listener, Notification};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, Scope};
use std::time::{Instant, SystemTime};

/// Stack of a thread that answers calls: buffers for a caller's memory are on the heap.
const STACK: usize = 256 << 10;

/// Most threads for slow calls.
const MOST_THREADS: usize = 16;

/// Most slow calls that wait for one of them; beyond it they fail with `EAGAIN`. Each is a thread of
/// the tenant that waits too.
const MOST_WAITING: usize = 1024;

/// Tenant of a session, its metrics and its log.
#[derive(Clone)]
pub struct Outlets {
    /// Name of the tenant.
    pub tenant: Arc<str>,
    /// Of all the tenant's sessions.
    pub metrics: Arc<Metrics>,
    /// Takes each decision.
    pub log: Arc<dyn Log>,
    /// Of all the tenant's sessions.
    pub budget: Arc<Budget>,
}

/// A thread that answers the calls of a listener, until no task uses its filter any more. Then the
/// handlers are dropped, and clean up.
#[must_use = "dropping it ends the supervision: notified calls fail with ENOSYS then"]
pub struct Session {
    listener: Arc<Listener>,
    pending: Arc<Pending>,
    /// Readable when the session is to stop.
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Starts to answer. `ended` is called, on the session's thread, when it has ended by itself or by
    /// [`stop`](Self::stop), and the handlers are dropped.
    ///
    /// Of several handlers of a call, the first is asked first.
    ///
    /// # Errors
    ///
    /// When there are no more threads or descriptors.
    pub fn start(
        listener: Listener,
        handlers: Vec<Box<dyn Handler>>,
        outlets: Outlets,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let supervisor = Supervisor::new(Arc::clone(&listener), handlers, outlets);
        let pending = Arc::clone(&supervisor.pending);
        let stopped = Arc::clone(&stop);
        let serve = move || {
            supervisor.serve(stopped.as_fd());
            drop(supervisor);
            ended();
        };
        let thread = Builder::new().name("session".to_owned()).stack_size(STACK);
        Ok(Self {
            listener,
            pending,
            stop,
            thread: Some(thread.spawn(serve)?),
        })
    }

    /// The listener, for those who keep it over a restart.
    pub fn listener(&self) -> BorrowedFd<'_> {
        (*self.listener).as_fd()
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks it to end; calls that were not received go on waiting if another descriptor of the listener is
    /// open.
    pub fn stop(&self) {
        // It fails only where it was asked 2^64 times before.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// The threads whose calls are pending.
    pub fn callers(&self) -> Vec<u32> {
        self.pending.lock().iter().map(|&(_, tid)| tid).collect()
    }

    /// Fails its pending calls with `EINTR`.
    pub fn interrupt(&self) {
        for (call, _) in std::mem::take(&mut *self.pending.lock()) {
            // Answered at last, or its caller is gone.
            let _ = self.listener.answer(call, &Answer::Error(Errno::INTR));
        }
    }

    /// Leaves its threads to the end of this process.
    pub fn abandon(mut self) {
        drop(self.thread.take());
    }
}

impl Drop for Session {
    /// Stops it and waits: slow calls are answered before.
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Handlers' panics are caught in the session.
            let _ = thread.join();
        }
    }
}

/// The calls that were received and not answered, and their threads: no later broker can receive them again.
#[derive(Default)]
struct Pending(Mutex<Vec<(u64, u32)>>);

impl Pending {
    fn add(&self, call: &Notification) {
        self.lock().push((call.id, call.pid));
    }

    fn remove(&self, call: u64) {
        self.lock().retain(|&(id, _)| id != call);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handler and its counts.
struct Supervised {
    handler: Box<dyn Handler>,
    metrics: Arc<HandlerMetrics>,
}

/// State that a session's threads share.
struct Supervisor {
    listener: Arc<Listener>,
    handlers: Vec<Supervised>,
    /// Places in `handlers`, by the call's number.
    by_call: BTreeMap<i64, Vec<usize>>,
    /// Of calls that no handler is for.
    others: Arc<HandlerMetrics>,
    outlets: Outlets,
    pending: Arc<Pending>,
    slow: Mutex<Slow>,
}

/// Slow calls.
#[derive(Default)]
struct Slow {
    threads: usize,
    waiting: VecDeque<Notification>,
}

/// A verdict, and who gave it.
struct Verdict<'a> {
    handler: &'static str,
    metrics: &'a HandlerMetrics,
    answer: Answer,
}

impl Supervisor {
    fn new(listener: Arc<Listener>, handlers: Vec<Box<dyn Handler>>, outlets: Outlets) -> Self {
        let mut by_call: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (at, handler) in handlers.iter().enumerate() {
            for call in handler.calls() {
                by_call.entry(*call).or_default().push(at);
            }
        }
        let supervised = |handler: Box<dyn Handler>| Supervised {
            metrics: outlets.metrics.of(handler.name()),
            handler,
        };
        Self {
            listener,
            handlers: handlers.into_iter().map(supervised).collect(),
            by_call,
            others: outlets.metrics.of(OTHERS),
            outlets,
            pending: Arc::default(),
            slow: Mutex::default(),
        }
    }

    /// Answers calls until no task is left or `stop` is readable.
    fn serve(&self, stop: BorrowedFd<'_>) {
        std::thread::scope(|scope| {
            while self.wait(stop) {
                match self.listener.receive() {
                    Ok(call) => {
                        self.pending.add(&call);
                        if self.is_slow(&call) {
                            self.answer_aside(scope, call);
                        } else {
                            self.answer(&call);
                        }
                    }
                    // The caller died, or another thread of this process was debugged.
                    Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                    Err(_) => break,
                }
            }
            self.end_waits();
        });
    }

    /// Ends the waits of slow calls, also of those that wait for a thread.
    fn end_waits(&self) {
        let waiting = std::mem::take(&mut self.slow().waiting);
        for notification in waiting {
            let call = Call::new(&self.listener, &notification);
            self.finish(&call, Clock::start(), self.no_handler(Errno::INTR));
        }
        for Supervised { handler, .. } in &self.handlers {
            handler.stop();
        }
    }

    /// Waits for the next call; false when there is none any more.
    fn wait(&self, stop: BorrowedFd<'_>) -> bool {
        loop {
            let mut fds = [
                PollFd::new(&*self.listener, PollFlags::IN),
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => return false,
                Ok(_) => {}
            }
            let [listener, stop] = fds.each_ref().map(PollFd::revents);
            if !stop.is_empty() || listener.intersects(PollFlags::HUP | PollFlags::ERR) {
                return false;
            }
            if listener.contains(PollFlags::IN) {
                return true;
            }
        }
    }

    fn of(&self, notification: &Notification) -> impl Iterator<Item = &Supervised> {
        let places = self.by_call.get(&i64::from(notification.call));
        places
            .into_iter()
            .flatten()
            .filter_map(|at| self.handlers.get(*at))
    }

    fn is_slow(&self, notification: &Notification) -> bool {
        self.of(notification)
            .any(|supervised| supervised.handler.is_slow(notification))
    }

    /// Answers on a thread of its own; with too many of them, when one of the session's is free.
    fn answer_aside<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        notification: Notification,
    ) {
        let mut slow = self.slow();
        // The first one is the session's; further ones are of the tenant's budget.
        let share = match slow.threads {
            0 => Some(None),
            MOST_THREADS.. => None,
            _ => self.outlets.budget.thread().map(Some),
        };
        if let Some(share) = share {
            let work = move || {
                self.work(notification);
                drop(share);
            };
            let thread = Builder::new()
                .name("slow call".to_owned())
                .stack_size(STACK);
            if thread.spawn_scoped(scope, work).is_ok() {
                slow.threads += 1;
                return;
            }
        } else if slow.waiting.len() < MOST_WAITING {
            slow.waiting.push_back(notification);
            return;
        }
        drop(slow);
        self.finish(
            &Call::new(&self.listener, &notification),
            Clock::start(),
            self.no_handler(Errno::AGAIN),
        );
    }

    /// Answers a slow call, and those that wait.
    fn work(&self, first: Notification) {
        let mut next = Some(first);
        while let Some(notification) = next {
            self.answer(&notification);
            let mut slow = self.slow();
            next = slow.waiting.pop_front();
            if next.is_none() {
                slow.threads -= 1;
            }
        }
    }

    fn slow(&self) -> MutexGuard<'_, Slow> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, notification: &Notification) {
        let clock = Clock::start();
        let call = Call::new(&self.listener, notification);
        let verdict = self.decide(&call);
        self.finish(&call, clock, verdict);
    }

    /// Asks the handlers of the call's number, one after the other while they leave it to the kernel.
    fn decide(&self, call: &Call<'_>) -> Verdict<'_> {
        let notification = call.notification;
        let is_x32 = cfg!(target_arch = "x86_64") && notification.call as u32 & filter::X32 != 0;
        if notification.arch != filter::ARCH || is_x32 {
            return self.no_handler(Errno::NOSYS);
        }
        let mut verdict = Verdict {
            handler: OTHERS,
            metrics: &self.others,
            answer: Answer::Continue,
        };
        // What such a process may still do is for the kernel to say.
        match call.target().and_then(landlock::is_restricted) {
            Ok(false) => {}
            Ok(true) => {
                call.describe("left to the kernel: the process has restricted itself".to_owned());
                return verdict;
            }
            Err(errno) => return self.no_handler(errno),
        }
        for Supervised { handler, metrics } in self.of(notification) {
            let asked = catch_unwind(AssertUnwindSafe(|| handler.handle(call)));
            let answer = asked.unwrap_or_else(|_| {
                call.describe("the handler panicked".to_owned());
                Err(Errno::IO)
            });
            verdict = Verdict {
                handler: handler.name(),
                metrics,
                answer: answer.unwrap_or_else(Answer::Error),
            };
            if !matches!(verdict.answer, Answer::Continue) {
                break;
            }
        }
        verdict
    }

    fn no_handler(&self, errno: Errno) -> Verdict<'_> {
        Verdict {
            handler: OTHERS,
            metrics: &self.others,
            answer: Answer::Error(errno),
        }
    }

    /// Sends the answer, counts and logs it.
    fn finish(&self, call: &Call<'_>, clock: Clock, verdict: Verdict<'_>) {
        let notification = call.notification;
        let mut answer = verdict.answer;
        let mut sent = self.listener.answer(notification.id, &answer);
        // The call still waits where the caller's descriptors are used up.
        if let (Answer::Descriptor { .. }, Err(errno)) = (&answer, sent)
            && errno != Errno::NOENT
        {
            answer = Answer::Error(errno);
            sent = self.listener.answer(notification.id, &answer);
        }
        self.pending.remove(notification.id);
        let (outcome, errno) = match (sent, &answer) {
            (Err(_), _) => (Outcome::Gone, 0),
            (Ok(()), Answer::Continue) => (Outcome::Continued, 0),
            (Ok(()), Answer::Error(errno)) => (Outcome::Refused, errno.raw_os_error()),
            (Ok(()), Answer::Value(_) | Answer::Descriptor { .. }) => (Outcome::Answered, 0),
        };
        let took = clock.started.elapsed();
        verdict.metrics.record(outcome, took);
        self.outlets.log.decision(Decision {
            time: clock.time,
            tenant: Arc::clone(&self.outlets.tenant),
            tid: notification.pid,
            handler: verdict.handler,
            call: notification.call,
            args: notification.args,
            request: call.request.take(),
            outcome,
            errno,
            took,
        });
    }
}

/// Name in logs and metrics of decisions without a handler.
const OTHERS: &str = "none";

/// When a call arrived.
#[derive(Clone, Copy)]
struct Clock {
    time: SystemTime,
    started: Instant,
}

impl Clock {
    fn start() -> Self {
        Self {
            time: SystemTime::now(),
            started: Instant::now(),
        }
    }
}
