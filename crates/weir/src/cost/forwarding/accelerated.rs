//! A bridge that weir accelerates, kept by a thread of this process as its daemon would.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow, bail};

use hostnet::netns;

/// The hook of the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Native XDP.
    Xdp,
    /// tcx, or tc where the kernel has no tcx.
    Tcx,
}

/// An accelerated bridge.
#[must_use = "the bridge is no longer accelerated when this is dropped"]
pub struct Accelerated {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    /// The thread's ID.
    tid: i32,
}

/// A request to the thread: it answers when the maps have everything that the bridge has.
struct Request {
    settled: Sender<Result<Mirror>>,
}

/// The state of the maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirror {
    /// Entries of the forwarding database in the maps.
    pub entries: u64,
    /// Errors and full resynchronizations since the start.
    pub resyncs: u64,
}

impl Accelerated {
    /// Accelerates a bridge of this network namespace, with one hook for all of its ports.
    pub fn start(host: BorrowedFd<'_>, bridge: &str, hook: Hook) -> Result<Self> {
        let host = host
            .try_clone_to_owned()
            .context("cannot duplicate a descriptor")?;
        let (requests, inbox) = channel();
        let (started, start) = channel();
        let bridge = bridge.to_owned();
        let thread = std::thread::Builder::new()
            .name("weir-switch".into())
            .spawn(move || {
                let entered = netns::enter(std::os::fd::AsFd::as_fd(&host));
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                let ready = |result: Result<()>| drop(started.send(result.map(|()| tid)));
                match entered {
                    Ok(()) => keep(&bridge, hook, &inbox, ready),
                    Err(error) => ready(Err(error.into())),
                }
            })
            .context("cannot start a thread")?;
        let tid = start
            .recv()
            .map_err(|_| anyhow!("the thread of the accelerator ended"))??;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
            tid,
        })
    }

    /// Returns when the maps have everything that the bridge has now.
    pub fn settle(&mut self) -> Result<Mirror> {
        let (settled, answer) = channel();
        let requests = self.requests.as_ref();
        requests
            .and_then(|requests| requests.send(Request { settled }).ok())
            .and_then(|()| answer.recv().ok())
            .context("the thread of the accelerator ended")?
    }

    /// CPU time of the thread so far, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<u64> {
        let path = format!("/proc/self/task/{}/schedstat", self.tid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let first = text
            .split_whitespace()
            .next()
            .and_then(|it| it.parse().ok());
        first.with_context(|| format!("{path} has no CPU time"))
    }
}

impl Drop for Accelerated {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // It has told its error already.
            let _ = thread.join();
        }
    }
}

/// Accelerates until nobody can make a request any more.
fn keep(_bridge: &str, _hook: Hook, _requests: &Receiver<Request>, ready: impl FnOnce(Result<()>)) {
    ready(missing());
}

fn missing() -> Result<()> {
    bail!("this build has no accelerator of bridges")
}
