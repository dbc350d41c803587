//! The accelerator of one of the two bridges, on a thread in its namespace.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use hostnet::mount::DetachedMount;
use hostnet::netns;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use testbpf::DEFECTS;
use weir::bpf::Object;
use weir::switch::keep::Keep;
use weir::switch::{CONSTANTS, LAYOUTS, OBJECT, PortSettings, Refusal, Settings};

use crate::switch_fuzz::event::Hook;
use crate::switch_fuzz::side::{BRIDGE, port_name};

/// The programs with one defect each.
static BROKEN: LazyLock<Vec<Object>> = LazyLock::new(|| {
    let objects = DEFECTS.iter().map(|defect| Object {
        name: "switch",
        bytes: defect.object,
        needs: "the same as without the defect",
        layouts: LAYOUTS,
        constants: CONSTANTS,
        arrays_by_cpu: &[],
    });
    objects.collect()
});

/// Whether a defect shows on VLAN-aware bridges alone.
pub fn needs_vlans(defect: &str) -> bool {
    ["untag", "vlan"].contains(&defect)
}

fn object(defect: Option<&str>) -> Result<&'static Object> {
    let Some(name) = defect else {
        return Ok(&OBJECT);
    };
    let at = DEFECTS.iter().position(|defect| defect.name == name);
    let object = at.and_then(|at| BROKEN.get(at));
    object.with_context(|| format!("no defect '{name}': --list-broken lists them"))
}

/// Asked of the thread.
enum Request {
    Settle,
    Status,
    /// To do nothing from now on, or to go on.
    Silence(bool),
    /// To end, and leave the programs where they are.
    Leave,
}

/// Filesystems at no path, where programs and notes outlive an accelerator.
pub struct Outliving {
    bpffs: DetachedMount,
    tmpfs: DetachedMount,
}

impl Outliving {
    pub fn new() -> Result<Self> {
        Ok(Self {
            bpffs: DetachedMount::new("bpf")?,
            tmpfs: DetachedMount::new("tmpfs")?,
        })
    }

    pub fn keep(&self) -> Result<Keep> {
        let (pins, state) = (self.bpffs.path("/"), self.tmpfs.path("/"));
        Keep::of_bridge(Some(&pins), &state, BRIDGE)
    }
}

/// An accelerated bridge.
pub struct Accelerator {
    /// None once it is to end.
    requests: Option<Sender<Request>>,
    answers: Receiver<Result<String>>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Accelerator {
    /// Attaches to the bridge of the namespace, with the hook of each port.
    pub fn attach(
        namespace: BorrowedFd<'_>,
        hooks: &[Hook],
        defect: Option<&str>,
        keep: &Keep,
    ) -> Result<Self> {
        let object = object(defect)?;
        let mut settings = Settings::default();
        for (port, hook) in hooks.iter().enumerate() {
            let own = PortSettings {
                hook: Some(match hook {
                    Hook::Auto => weir::switch::Hook::Auto,
                    Hook::Xdp => weir::switch::Hook::Xdp,
                    Hook::Tcx => weir::switch::Hook::Tcx,
                    Hook::Kernel => weir::switch::Hook::Kernel,
                }),
                ..PortSettings::default()
            };
            settings.ports.insert(port_name(port), own);
        }
        let (requests, questions) = channel();
        let (replies, answers) = channel();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let thread = Thread {
            namespace: namespace.try_clone_to_owned()?,
            wake: wake.try_clone()?,
            questions,
            replies,
            keep: keep.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("accelerator".into())
            .spawn(move || thread.run(object, &settings))?;
        let accelerator = Self {
            requests: Some(requests),
            answers,
            wake,
            thread: Some(thread),
        };
        accelerator.answer()?;
        Ok(accelerator)
    }

    fn answer(&self) -> Result<String> {
        let answer = self.answers.recv();
        answer.map_err(|_| anyhow!("the accelerator's thread has ended"))?
    }

    fn ask(&self, request: Request) -> Result<String> {
        let requests = self.requests.as_ref().context("it ends")?;
        let sent = requests.send(request);
        sent.map_err(|_| anyhow!("the accelerator's thread has ended"))?;
        self.wake()?;
        self.answer()
    }

    fn wake(&self) -> Result<()> {
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Returns when all that has happened to the bridge is in the fast path.
    pub fn settle(&self) -> Result<()> {
        self.ask(Request::Settle).map(drop)
    }

    /// The state, for a report.
    pub fn status(&self) -> Result<String> {
        self.ask(Request::Status)
    }

    /// Ends as a daemon does that is killed: the programs stay, and go on forwarding for a while.
    pub fn leave(self) -> Result<()> {
        self.ask(Request::Leave).map(drop)
    }

    /// Has it do nothing, as a daemon that hangs, or go on.
    pub fn silence(&self, silent: bool) -> Result<()> {
        self.ask(Request::Silence(silent)).map(drop)
    }
}

/// It has detached when this returns.
impl Drop for Accelerator {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn all_cpus() -> CpuSet {
    let mut cpus = CpuSet::new();
    for cpu in 0..CpuSet::MAX_CPU {
        cpus.set(cpu);
    }
    cpus
}

struct Thread {
    namespace: OwnedFd,
    wake: OwnedFd,
    questions: Receiver<Request>,
    replies: Sender<Result<String>>,
    keep: Keep,
}

impl Thread {
    fn run(self, object: &'static Object, settings: &Settings) {
        // Whoever asked finds the reason; nobody asks where this side has gone.
        if let Err(error) = self.serve(object, settings) {
            let _ = self.replies.send(Err(error));
        }
    }

    fn serve(&self, object: &'static Object, settings: &Settings) -> Result<()> {
        // Any CPU will do, as for a daemon; the thread that compares has one of its own.
        sched_setaffinity(None, &all_cpus())?;
        netns::enter(self.namespace.as_fd())?;
        let keep = Some(&self.keep);
        let mut accelerator = weir::switch::Accelerator::attach_object(
            object,
            BRIDGE,
            settings,
            Refusal::Fail,
            keep,
        )?;
        self.replies.send(Ok(String::new()))?;
        let mut is_silent = false;
        loop {
            match self.questions.try_recv() {
                Ok(Request::Settle) => {
                    accelerator.settle()?;
                    self.replies.send(Ok(String::new()))?;
                }
                Ok(Request::Status) => {
                    let mut text = serde_json::to_string(&accelerator.status()?)?;
                    for news in accelerator.news() {
                        text += "\n";
                        text += news;
                    }
                    self.replies.send(Ok(text))?;
                }
                Ok(Request::Silence(silent)) => {
                    is_silent = silent;
                    self.replies.send(Ok(String::new()))?;
                }
                Ok(Request::Leave) => {
                    drop(accelerator);
                    self.replies.send(Ok(String::new()))?;
                    return Ok(());
                }
                Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
                Err(std::sync::mpsc::TryRecvError::Empty) => {
                    if !is_silent {
                        accelerator.poll()?;
                    }
                    self.wait(&accelerator, is_silent)?;
                }
            }
        }
        accelerator.detach()
    }

    fn wait(&self, accelerator: &weir::switch::Accelerator, is_silent: bool) -> Result<()> {
        let mut sockets = vec![PollFd::new(&self.wake, PollFlags::IN)];
        let mut patience = Duration::from_secs(1);
        if !is_silent {
            let events = accelerator.events();
            sockets.push(PollFd::from_borrowed_fd(events, PollFlags::IN));
            patience = patience.min(accelerator.patience());
        }
        poll(&mut sockets, Some(&Timespec::try_from(patience)?))?;
        // Empty, most of the time.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        Ok(())
    }
}
