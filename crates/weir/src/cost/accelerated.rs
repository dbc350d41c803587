//! A bridge that weir accelerates, kept by a thread of this process as its daemon would.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::switch::{Accelerator, Hook, PortSettings, Refusal, Settings};
use hostnet::netns;

/// The reason of the programs for leaving a frame to the kernel that resets its sender's age.
const REFRESH: &str = "refresh";

/// An accelerated bridge.
#[must_use = "the bridge is no longer accelerated when this is dropped"]
pub struct Accelerated {
    requests: Option<Sender<Request>>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// The thread's ID.
    tid: i32,
}

/// A request to the thread.
struct Request {
    /// Answers when the maps have everything that the bridge has.
    settled: Sender<Result<Mirror>>,
}

/// The state of the maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirror {
    /// Entries of the forwarding database in the maps.
    pub entries: u64,
    /// Full resynchronizations since the start.
    pub resyncs: u64,
    /// Frames that the programs have forwarded.
    pub forwarded: u64,
    /// Frames that they have left to the kernel once in a while, so that it does not forget their sender.
    pub refreshing: u64,
}

impl Accelerated {
    /// Accelerates a bridge of this network namespace, with one hook for all of its ports.
    pub fn start(host: BorrowedFd<'_>, bridge: &str, hook: Hook) -> Result<Self> {
        let host = host
            .try_clone_to_owned()
            .context("cannot duplicate a descriptor")?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("cannot make an eventfd")?;
        let bell = Arc::new(bell);
        let (requests, inbox) = channel();
        let (started, start) = channel();
        let (bridge, heard) = (bridge.to_owned(), Arc::clone(&bell));
        let thread = std::thread::Builder::new()
            .name("weir-switch".into())
            .spawn(move || {
                let attached = attach(host.as_fd(), &bridge, hook);
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                match attached {
                    Ok(accelerator) => {
                        drop(started.send(Ok(tid)));
                        keep(accelerator, &inbox, heard.as_fd());
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            })
            .context("cannot start a thread")?;
        let tid = start
            .recv()
            .map_err(|_| anyhow!("the thread of the accelerator ended"))??;
        Ok(Self {
            requests: Some(requests),
            bell,
            thread: Some(thread),
            tid,
        })
    }

    /// Returns when the maps have everything that the bridge has now.
    pub fn settle(&self) -> Result<Mirror> {
        let (settled, answer) = channel();
        let requests = self.requests.as_ref();
        let sent = requests.and_then(|requests| requests.send(Request { settled }).ok());
        self.ring();
        sent.and_then(|()| answer.recv().ok())
            .context("the thread of the accelerator ended")?
    }

    /// CPU time of the thread so far, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<u64> {
        let path = format!("/proc/self/task/{}/schedstat", self.tid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let first = text.split_whitespace().next();
        first
            .and_then(|it| it.parse().ok())
            .with_context(|| format!("{path} has no CPU time"))
    }

    /// Wakes the thread.
    fn ring(&self) {
        // It is awake already if the counter is full.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }
}

impl Drop for Accelerated {
    fn drop(&mut self) {
        drop(self.requests.take());
        self.ring();
        if let Some(thread) = self.thread.take() {
            // It has told its error already.
            let _ = thread.join();
        }
    }
}

fn attach(host: BorrowedFd<'_>, bridge: &str, hook: Hook) -> Result<Accelerator> {
    netns::enter(host)?;
    let settings = Settings {
        default: PortSettings {
            hook: Some(hook),
            ..PortSettings::default()
        },
        ..Settings::default()
    };
    let mut accelerator = Accelerator::attach(bridge, &settings, Refusal::Fail, None)?;
    accelerator.settle()?;
    Ok(accelerator)
}

/// Accelerates until nobody can make a request any more.
fn keep(mut accelerator: Accelerator, requests: &Receiver<Request>, bell: BorrowedFd<'_>) {
    let mut fault = None;
    loop {
        if let Err(error) = wait(&accelerator, bell).and_then(|()| accelerator.poll()) {
            fault = Some(error);
        }
        match requests.try_recv() {
            Ok(request) => {
                let answer = match fault.take() {
                    Some(fault) => Err(fault),
                    None => settle(&mut accelerator),
                };
                // The one who asked may have gone.
                let _ = request.settled.send(answer);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break,
        }
    }
    // The lab goes now, and with it everything that cannot be detached.
    let _ = accelerator.detach();
}

/// Until the kernel or this process has news, or something is due.
fn wait(accelerator: &Accelerator, bell: BorrowedFd<'_>) -> Result<()> {
    let patience = Timespec::try_from(accelerator.patience()).context("too long a wait")?;
    let events = accelerator.events();
    let mut wanted = [
        PollFd::from_borrowed_fd(events, PollFlags::IN),
        PollFd::from_borrowed_fd(bell, PollFlags::IN),
    ];
    match poll(&mut wanted, Some(&patience)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno).context("cannot wait for the kernel's reports"),
    }
    let mut rung = [0; 8];
    match rustix::io::read(bell, &mut rung) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno).context("cannot read from an eventfd"),
    }
}

fn settle(accelerator: &mut Accelerator) -> Result<Mirror> {
    accelerator.settle()?;
    let status = accelerator.status()?;
    if let Some(reason) = status.why_not {
        return Err(anyhow!("the bridge is left to the kernel: {reason}"));
    }
    let ports = status.ports.iter();
    let refreshing = ports.clone().filter_map(|port| port.reasons.get(REFRESH));
    Ok(Mirror {
        entries: status.addresses as u64,
        resyncs: status.mirror.resyncs,
        refreshing: refreshing.sum(),
        forwarded: ports.map(|port| port.received.packets).sum(),
    })
}
