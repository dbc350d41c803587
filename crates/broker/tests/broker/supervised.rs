//! This program as a supervised child: it installs a real filter, hands its listener over, plays a
//! scene and prints lines.
#![allow(unsafe_code)] // Supervised calls, made as a program makes them, and signals.

use broker::message;
use broker::policy::Calls;
use broker::seccomp::{Listener, install};
use broker::supervise::handlers::connect::Redirections;
use broker::supervise::log::{Decision, Log};
use broker::supervise::metrics::Metrics;
use broker::supervise::rule::Rule;
use broker::supervise::session::{Outlets, Session};
use broker::supervise::{Handler, filter, handlers};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    DumpableBehavior, Gid, Signal, Uid, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::Limit;

pub type Result<T, E = testkit::Error> = std::result::Result<T, E>;

/// The scene to play, with its arguments.
const SCENE: &str = "BROKER_TEST_SCENE";
/// Names of the handlers whose rules the filter has, or nothing for [`TEST_RULES`].
const HANDLERS: &str = "BROKER_TEST_HANDLERS";

/// Instead of names: this child's parent has installed the filter.
pub const INHERITED: &str = "inherited";

/// The rules of handlers that only tests have: calls that do nothing of note.
pub const TEST_RULES: &[Rule] = &[
    Rule::always(libc::SYS_getppid, "getppid"),
    Rule::always(libc::SYS_getpgid, "getpgid"),
    Rule::always(libc::SYS_getsid, "getsid"),
];

/// Keeps all decisions.
#[derive(Default)]
pub struct Decisions(pub Mutex<Vec<Decision>>);

impl Log for Decisions {
    fn decision(&self, decision: Decision) {
        self.0.lock().expect("no panic").push(decision);
    }
}

/// A supervised child. Killed on drop, its session ended.
pub struct Supervised {
    pub child: Child,
    output: BufReader<ChildStdout>,
    pub session: Option<Session>,
    pub metrics: Arc<Metrics>,
    pub log: Arc<Decisions>,
}

/// Commands that start the child, such as `unshare`, by which it is not this process's child itself.
#[derive(Default)]
pub struct Start<'a> {
    pub scene: &'a str,
    /// Of the filter; empty for [`TEST_RULES`].
    pub names: Vec<&'static str>,
    /// In front of the program.
    pub wrapper: &'a [&'a str],
}

impl Supervised {
    /// Plays a scene under the handlers of these grants.
    pub fn granted(scene: &str, calls: &Calls) -> Result<Self> {
        let start = Start {
            scene,
            names: handlers::names(calls),
            wrapper: &[],
        };
        let redirections = Arc::new(Redirections::new(&calls.connect));
        Self::start(&start, handlers::of_calls(calls, &redirections))
    }

    /// Plays a scene under these handlers, which are for [`TEST_RULES`].
    pub fn by(scene: &str, handlers: Vec<Box<dyn Handler>>) -> Result<Self> {
        let start = Start {
            scene,
            ..Start::default()
        };
        Self::start(&start, handlers)
    }

    pub fn start(start: &Start<'_>, handlers: Vec<Box<dyn Handler>>) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let program = std::env::current_exe()?;
        let mut words = start
            .wrapper
            .iter()
            .map(std::ffi::OsStr::new)
            .chain([program.as_os_str()]);
        let mut child = Command::new(words.next().ok_or("a program")?)
            .args(words)
            .env(SCENE, start.scene)
            .env(HANDLERS, start.names.join(","))
            .stdin(Stdio::from(there))
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("its output")?);
        let mut supervised = Self {
            child,
            output,
            session: None,
            metrics: Arc::default(),
            log: Arc::default(),
        };
        let listener = message::receive_text(&here)?.fd.ok_or("a listener")?;
        let outlets = Outlets {
            tenant: "test".into(),
            metrics: Arc::clone(&supervised.metrics),
            log: Arc::<Decisions>::clone(&supervised.log),
            budget: Arc::default(),
        };
        let session = Session::start(Listener::new(listener)?, handlers, outlets, || {})?;
        supervised.session = Some(session);
        message::send_text(&here, "ok", None)?;
        Ok(supervised)
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// All lines that it prints from here on to its end, which is without an error.
    pub fn lines(&mut self) -> Result<Vec<String>> {
        let lines = self
            .output
            .by_ref()
            .lines()
            .collect::<std::io::Result<_>>()?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("the child ended with {status}: {lines:?}").into());
        }
        Ok(lines)
    }

    /// Waits until the session has ended by itself.
    pub fn wait_for_end(&mut self) -> Result<()> {
        let session = self.session.as_ref().ok_or("a session")?;
        wait_until("the session ends", || session.is_finished())
    }

    /// Decisions so far: handler, request and outcome. A decision is logged after its answer.
    pub fn decisions(&self) -> Vec<Decision> {
        self.log.0.lock().expect("no panic").clone()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(self.session.take());
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    testkit::until(Duration::from_secs(30), what, || Ok(holds()))
}

/// Action of a child: its name, and its function of the arguments.
pub type Scene = (&'static str, fn(&[&str]) -> Result<()>);

/// If this process is a supervised child: plays its scene.
pub fn play(scenes: &[Scene]) -> Option<ExitCode> {
    let scene = std::env::var(SCENE).ok()?;
    // A scene among the words of another has commas instead.
    let gap = if scene.contains(' ') { ' ' } else { ',' };
    let words: Vec<_> = scene.split(gap).collect();
    let result = install_filter().and_then(|()| {
        let named = scenes.iter().find(|(name, _)| Some(name) == words.first());
        named.ok_or("an unknown scene")?.1(&words[1..])
    });
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{scene}: {error}");
            ExitCode::FAILURE
        }
    })
}

fn install_filter() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let names = std::env::var(HANDLERS)?;
    if names == INHERITED {
        return Ok(());
    }
    let names: Vec<_> = names.split(',').filter(|name| !name.is_empty()).collect();
    let rules: Vec<_> = if names.is_empty() {
        TEST_RULES.iter().collect()
    } else {
        handlers::rules(&names).collect()
    };
    let listener = install(&filter::program(rules))?;
    let socket = rustix::stdio::stdin();
    message::send_text(socket, "listener", Some(listener.as_fd()))?;
    message::receive_ok(socket)?;
    Ok(())
}

/// Makes a call as it is; its result, or the negative errno. Pointers among the arguments are those
/// of memory that lives, and that the call may write to where it writes.
pub fn call(number: i64, args: [u64; 5]) -> i64 {
    // SAFETY: needed to make calls with any bits in their arguments. See above.
    let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4]) };
    if result < 0 {
        -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        result
    }
}

/// The address of memory that outlives the call.
pub fn address<T: ?Sized>(of: &T) -> u64 {
    (&raw const *of).cast::<u8>().expose_provenance() as u64
}

/// Makes this process an ordinary user's.
pub fn become_nobody() -> Result<()> {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// Its user and group.
pub const NOBODY: u32 = 65534;

/// Interrupts this process all the time from here on; calls are restarted.
pub fn start_storm() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: needed because std has no signal handlers. All-zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: needed to install it; the handler does nothing.
    unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
    let often = libc::timeval {
        tv_sec: 0,
        tv_usec: 50,
    };
    let timer = libc::itimerval {
        it_interval: often,
        it_value: often,
    };
    // SAFETY: needed because std has no timers. The kernel reads one `itimerval`.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

/// Becomes root of a user namespace and of a mount namespace of its own; false where users may not.
pub fn become_root_of_a_namespace() -> Result<bool> {
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    // SAFETY: needed for namespaces. This process has one thread, and shares no descriptors.
    match unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) } {
        Err(Errno::PERM | Errno::NOSPC | Errno::ACCESS) => return Ok(false),
        result => result?,
    }
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {NOBODY} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {NOBODY} 1"))?;
    Ok(true)
}

/// A directory of its own, removed on drop.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A directory of [`NOBODY`], below one of its own.
    pub fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("own"))?;
        std::os::unix::fs::chown(path.join("own"), Some(NOBODY), Some(NOBODY))?;
        Ok(Self(path))
    }

    /// That of [`NOBODY`].
    pub fn own(&self) -> PathBuf {
        self.0.join("own")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Plays a scene in a process of its own below this one, under the same filter.
pub fn play_below(scene: &str) -> Result<()> {
    let status = Command::new(std::env::current_exe()?)
        .env(SCENE, scene)
        .env(HANDLERS, INHERITED)
        .status()?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| status.to_string().into())
}

/// The next process that this one starts is the first of a pid namespace.
pub fn unshare_pids() -> Result<()> {
    // SAFETY: needed for namespaces. This process has one thread, and shares no descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?;
    Ok(())
}

/// The command that plays a scene without a filter of its own.
pub fn play_bare(scene: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(SCENE, scene).env(HANDLERS, INHERITED);
    Ok(command)
}

/// The same as words of a scene that runs a command.
pub fn command_of(scene: &str, handlers: &str) -> Result<String> {
    let program = std::env::current_exe()?;
    let scene = scene.replace(' ', ",");
    Ok(format!(
        "env {SCENE}={scene} {HANDLERS}={handlers} {}",
        program.display()
    ))
}

/// The tries of an attack in which another thread changes memory meanwhile. How often that thread is
/// in time depends on the machine, so a fixed number could miss one of the two outcomes.
pub struct Tries {
    least: u64,
    made: u64,
    limit: Limit,
}

impl Tries {
    /// How often each outcome must be seen.
    const ENOUGH: u64 = 10;
    const MOST_TIME: Duration = Duration::from_secs(60);

    /// At least `number` tries, or a twentieth of them unless `WEIR_TEST_LONG` is set.
    pub fn at_least(number: u64) -> Self {
        let is_long = std::env::var_os("WEIR_TEST_LONG").is_some();
        Self {
            least: if is_long { number } else { number / 20 },
            made: 0,
            limit: Limit::new(Self::MOST_TIME),
        }
    }

    /// Whether to try again, when the rarer outcome was seen so often.
    pub fn again(&mut self, seen: u64) -> bool {
        self.made += 1;
        self.made <= self.least || seen < Self::ENOUGH && !self.limit.is_over()
    }

    /// Fails unless the rarer outcome was seen often enough.
    pub fn check(&self, seen: u64) -> Result<()> {
        if seen < Self::ENOUGH {
            let made = self.made;
            return Err(format!("of {made} tries, one outcome was seen {seen} times").into());
        }
        Ok(())
    }
}
