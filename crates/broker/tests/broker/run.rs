//! `weir run`'s part of the library, with a broker of a few lines.
#![allow(clippy::unnecessary_wraps)] // Scenes and tests are functions of one kind.

use crate::supervised::{Decisions, INHERITED, Result, command_of, play_bare, wait_until};
use broker::message::{LISTENER, SUPERVISE, receive_text, send_text};
use broker::policy::Calls;
use broker::seccomp::Listener;
use broker::supervise::handlers::{self, connect::Redirections};
use broker::supervise::run::{exec, supervise};
use broker::supervise::session::{Outlets, Session};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::Arc;
use testkit::{Test, tests};

/// A broker that grants sysinfo(2) to whom names no policy, nothing to `nothing`, and refuses others.
struct Broker {
    path: PathBuf,
    log: Arc<Decisions>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Broker {
    /// Serves this many connections.
    fn start(name: &str, connections: usize) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        listen(&socket, 8)?;
        let log: Arc<Decisions> = Arc::default();
        let of_thread = Arc::clone(&log);
        let thread = std::thread::spawn(move || {
            let mut sessions = Vec::new();
            for _ in 0..connections {
                let connection = accept_with(&socket, SocketFlags::CLOEXEC).expect("a connection");
                sessions.extend(serve(&connection, &of_thread));
            }
            wait_until("the sessions end", || {
                sessions.iter().all(Session::is_finished)
            })
            .expect("the commands end");
        });
        Ok(Self {
            path,
            log,
            thread: Some(thread),
        })
    }

    /// The requests in its log, after all its sessions have ended.
    fn requests(mut self) -> Vec<Option<String>> {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
        let decisions = self.log.0.lock().expect("no panic");
        decisions
            .iter()
            .map(|decision| decision.request.clone())
            .collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(connection: &OwnedFd, log: &Arc<Decisions>) -> Option<Session> {
    let request = receive_text(connection).ok()?;
    assert_eq!(request.head(), SUPERVISE);
    let reply = match request.value("policy") {
        None => "ok\nhandlers=sysinfo\n",
        Some("nothing") => "ok\nhandlers=\n",
        Some("newer") => "ok\nhandlers=sysinfo,teleport\n",
        Some(_) => "error denied\nask the administrator\n",
    };
    send_text(connection, reply, None).ok()?;
    let message = receive_text(connection).ok()?;
    assert_eq!(message.head(), LISTENER);
    let calls = Calls {
        sysinfo: true,
        ..Calls::default()
    };
    let outlets = Outlets {
        tenant: "test".into(),
        metrics: Arc::default(),
        log: Arc::<Decisions>::clone(log),
        budget: Arc::default(),
    };
    let listener = Listener::new(message.fd?).expect("a listener");
    let handlers = handlers::of_calls(&calls, &Arc::new(Redirections::new(&[])));
    let session = Session::start(listener, handlers, outlets, || {});
    send_text(connection, "ok", None).ok()?;
    Some(session.expect("a thread"))
}

/// `run BROKER POLICY COMMAND …`, as `weir run` does it; `-` for no policy.
pub fn run(words: &[&str]) -> Result<()> {
    let policy = Some(words[1]).filter(|policy| *policy != "-");
    if let Err(error) = supervise(Path::new(words[0]), policy) {
        println!("{error:#}");
        return Ok(());
    }
    let arguments: Vec<OsString> = words[3..].iter().map(Into::into).collect();
    let (code, error) = exec(OsStr::new(words[2]), &arguments);
    println!("{error:#}");
    std::process::exit(code.into());
}

/// The output of [`run`].
fn output(broker: &Path, rest: &str) -> Result<Output> {
    let scene = format!("run {} {rest}", broker.display());
    Ok(play_bare(&scene)?.output()?)
}

fn text(broker: &Path, rest: &str) -> Result<String> {
    Ok(String::from_utf8(output(broker, rest)?.stdout)?
        .trim_end()
        .to_owned())
}

fn the_command_is_supervised() -> Result<()> {
    let broker = Broker::start("run", 1)?;
    let inner = command_of("sysinfo", INHERITED)?;
    let line = text(&broker.path, &format!("- {inner}"))?;
    let memory = line.split(' ').next().unwrap_or_default();
    assert_eq!(memory.parse::<u64>()?, rustix::system::sysinfo().totalram);
    let requests = broker.requests();
    let words = Some("memory and uptime of the container".to_owned());
    assert!(requests.contains(&words), "{requests:?}");
    Ok(())
}

fn the_exit_status_is_the_commands() -> Result<()> {
    use std::os::unix::process::ExitStatusExt as _;
    let broker = Broker::start("exit", 6)?;
    let status = |command: &str| -> Result<ExitStatus> {
        Ok(output(&broker.path, &format!("- {command}"))?.status)
    };
    assert_eq!(status("true")?.code(), Some(0));
    assert_eq!(status("false")?.code(), Some(1));
    assert_eq!(status("/nonexistent")?.code(), Some(127));
    assert_eq!(status("/proc/version")?.code(), Some(126));
    assert_eq!(status("nonexistent-command")?.code(), Some(127));
    // The process is the command: a signal to it is one to the command.
    let scene = format!("run {} - sleep 1000", broker.path.display());
    let mut child = play_bare(&scene)?.spawn()?;
    let name = format!("/proc/{}/comm", child.id());
    let slept = wait_until("it sleeps", || {
        std::fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep")
    });
    let pid = Pid::from_child(&child);
    kill_process(
        pid,
        if slept.is_ok() {
            Signal::TERM
        } else {
            Signal::KILL
        },
    )?;
    assert_eq!(child.wait()?.signal(), Some(libc::SIGTERM));
    Ok(())
}

fn refusals_tell_cause_and_cure() -> Result<()> {
    let broker = Broker::start("refusals", 3)?;
    let absent = std::env::temp_dir().join("weir-absent.sock");
    for (path, policy, expected) in [
        (
            &broker.path,
            "web",
            "the broker refuses: ask the administrator (denied)",
        ),
        (
            &broker.path,
            "nothing",
            "run the command without `weir run`",
        ),
        (&broker.path, "newer", "install the same version"),
        (&absent, "-", "start weir-broker"),
    ] {
        let words = text(path, &format!("{policy} true"))?;
        assert!(words.contains(expected), "{words}");
    }
    Ok(())
}

fn a_supervised_command_is_not_supervised_again() -> Result<()> {
    let broker = Broker::start("nested", 2)?;
    let inner = format!("run {} - true", broker.path.display());
    let inner = command_of(&inner, INHERITED)?;
    let words = text(&broker.path, &format!("- {inner}"))?;
    assert!(words.contains("supervised already"), "{words}");
    Ok(())
}

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        the_exit_status_is_the_commands,
        refusals_tell_cause_and_cure,
        a_supervised_command_is_not_supervised_again,
    ];
    let roots = tests![the_command_is_supervised];
    tests.extend(roots.into_iter().map(crate::needs_root));
    tests
}
