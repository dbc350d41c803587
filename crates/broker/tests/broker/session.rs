//! Sessions: answers, and their failures.
#![allow(unsafe_code)] // A call of another architecture.
#![allow(clippy::unnecessary_wraps)] // Scenes and tests are functions of one kind.

use crate::supervised::{self, Result, Supervised, start_storm, wait_until};
use broker::seccomp::{Answer, Notification};
use broker::supervise::metrics::Outcome;
use broker::supervise::{Call, Handler};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Limit, tests};

type Handle = dyn Fn(&Call<'_>) -> Result<Answer, Errno> + Send + Sync;

/// A handler of `getppid`, `getpgid` and `getsid` as a function.
struct Test {
    handle: Box<Handle>,
    slow: bool,
    dropped: Arc<AtomicBool>,
}

impl Test {
    fn boxed(
        handle: impl Fn(&Call<'_>) -> Result<Answer, Errno> + Send + Sync + 'static,
    ) -> Box<dyn Handler> {
        Box::new(Self {
            handle: Box::new(handle),
            slow: false,
            dropped: Arc::default(),
        })
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        self.dropped.store(true, SeqCst);
    }
}

impl Handler for Test {
    fn name(&self) -> &'static str {
        "test"
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_getppid, libc::SYS_getpgid, libc::SYS_getsid]
    }

    fn is_slow(&self, notification: &Notification) -> bool {
        self.slow && i64::from(notification.call) == libc::SYS_getpgid
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        (self.handle)(call)
    }
}

/// The result of a call of one argument, or the negative errno.
fn call(number: i64, argument: u64) -> i64 {
    supervised::call(number, [argument, 0, 0, 0, 0])
}

/// Prints the result of getppid(2), getpgid(2) and getsid(2).
pub fn three(_: &[&str]) -> Result<()> {
    for number in [libc::SYS_getppid, libc::SYS_getpgid, libc::SYS_getsid] {
        println!("{}", call(number, 0));
    }
    Ok(())
}

fn handlers_are_asked_and_their_answers_arrive() -> Result<()> {
    let handler = Test::boxed(|call| match i64::from(call.notification.call) {
        libc::SYS_getppid => Ok(Answer::Value(4_000_000_000)),
        libc::SYS_getpgid => Err(Errno::XDEV),
        _ => Ok(Answer::Continue),
    });
    let mut child = Supervised::by("three", vec![handler])?;
    // The kernel's, 0 where the session's leader lies in another PID namespace.
    let session = call(libc::SYS_getsid, 0).to_string();
    let lines = child.lines()?;
    assert_eq!(lines, ["4000000000", &(-libc::EXDEV).to_string(), &session]);
    child.wait_for_end()?;
    let [(_, figures)] = &child.metrics.figures()[1..] else {
        return Err("one handler, and none".into());
    };
    let counts = [
        figures.answered,
        figures.refused,
        figures.continued,
        figures.gone,
    ];
    assert_eq!(counts, [1, 1, 1, 0]);
    let outcomes: Vec<_> = child
        .decisions()
        .iter()
        .map(|decision| decision.outcome)
        .collect();
    assert_eq!(
        outcomes,
        [Outcome::Answered, Outcome::Refused, Outcome::Continued]
    );
    Ok(())
}

fn a_handler_that_continues_leaves_the_call_to_the_next() -> Result<()> {
    let first = Test::boxed(|call| match i64::from(call.notification.call) {
        libc::SYS_getppid => Ok(Answer::Continue),
        _ => Ok(Answer::Value(1)),
    });
    let second = Test::boxed(|_| Ok(Answer::Value(2)));
    let lines = Supervised::by("three", vec![first, second])?.lines()?;
    assert_eq!(lines, ["2", "1", "1"]);
    Ok(())
}

fn calls_without_a_handler_are_left_to_the_kernel() -> Result<()> {
    let mut child = Supervised::by("three", Vec::new())?;
    assert_eq!(child.line()?, std::process::id().to_string());
    Ok(())
}

fn a_panic_fails_the_call_and_nothing_else() -> Result<()> {
    let handler = Test::boxed(|call| {
        assert_ne!(
            i64::from(call.notification.call),
            libc::SYS_getppid,
            "as the test wants it"
        );
        Ok(Answer::Value(3))
    });
    let mut child = Supervised::by("three", vec![handler])?;
    assert_eq!(child.lines()?, [&(-libc::EIO).to_string(), "3", "3"]);
    // In any order: each call has a thread, which notes its decision after the answer.
    let decisions = child.decisions();
    let mut requests = decisions.iter().filter_map(|it| it.request.as_deref());
    assert!(requests.any(|request| request == "the handler panicked"));
    Ok(())
}

fn the_end_of_the_tasks_ends_the_session_and_drops_the_handlers() -> Result<()> {
    let dropped = Arc::new(AtomicBool::new(false));
    let handler = Box::new(Test {
        handle: Box::new(|_| Ok(Answer::Value(1))),
        slow: false,
        dropped: Arc::clone(&dropped),
    });
    let mut child = Supervised::by("three", vec![handler])?;
    child.lines()?;
    wait_until("the handlers are dropped", || dropped.load(SeqCst))?;
    child.wait_for_end()
}

/// Makes a slow call on each of many threads, and fast ones once those are in their handler.
pub fn slow_beside_fast(words: &[&str]) -> Result<()> {
    let threads: usize = words[0].parse()?;
    let slow = || std::thread::spawn(|| call(libc::SYS_getpgid, 0));
    let slow: Vec<_> = (0..threads).map(|_| slow()).collect();
    while call(libc::SYS_getppid, 0) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..100 {
        call(libc::SYS_getppid, 0);
    }
    println!("fast");
    for thread in slow {
        println!("{}", thread.join().map_err(|_| "a panic")?);
    }
    Ok(())
}

fn slow_calls_hold_up_nobody_and_all_are_answered() -> Result<()> {
    /// As many as a session has threads for slow calls: the others wait.
    const THREADS: u64 = 16;
    let (arrived, released) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (here, go) = (Arc::clone(&arrived), Arc::clone(&released));
    let handler = Box::new(Test {
        handle: Box::new(move |call| {
            if i64::from(call.notification.call) != libc::SYS_getpgid {
                return Ok(Answer::Value(i64::from(here.load(SeqCst) >= THREADS)));
            }
            here.fetch_add(1, SeqCst);
            wait_until("the fast calls are answered", || go.load(SeqCst))
                .map_err(|_| Errno::TIMEDOUT)?;
            Ok(Answer::Value(5))
        }),
        slow: true,
        dropped: Arc::default(),
    });
    let mut child = Supervised::by("slow_beside_fast 40", vec![handler])?;
    assert_eq!(child.line()?, "fast");
    released.store(true, SeqCst);
    assert_eq!(child.lines()?, vec!["5"; 40]);
    assert_eq!(arrived.load(SeqCst), 40);
    Ok(())
}

/// Prints a line, makes a call, prints its result.
pub fn one(_: &[&str]) -> Result<()> {
    println!("calling");
    println!("{}", call(libc::SYS_getppid, 0));
    Ok(())
}

fn a_call_whose_caller_was_killed_is_seen_to_be_gone() -> Result<()> {
    let (gone, arrived) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (seen, here) = (Arc::clone(&gone), Arc::clone(&arrived));
    let handler = Test::boxed(move |call| {
        call.target()?;
        here.store(true, SeqCst);
        let mut end = Limit::new(Duration::from_secs(20));
        while call.check_alive().is_ok() && !end.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.store(u64::from(call.check_alive().is_err()), SeqCst);
        Ok(Answer::Value(1))
    });
    let mut child = Supervised::by("one", vec![handler])?;
    child.line()?;
    wait_until("the call arrives", || arrived.load(SeqCst))?;
    child.child.kill()?;
    child.child.wait()?;
    child.wait_for_end()?;
    assert_eq!(gone.load(SeqCst), 1);
    assert_eq!(child.decisions()[0].outcome, Outcome::Gone);
    Ok(())
}

/// Calls with each number up to the one given, under a storm of signals, and prints how many of the
/// results are others.
pub fn storm(words: &[&str]) -> Result<()> {
    let calls: u64 = words[0].parse()?;
    start_storm();
    let odd = (0..calls).filter(|at| call(libc::SYS_getpgid, *at) != at.cast_signed());
    println!("{}", odd.count());
    Ok(())
}

fn signals_repeat_no_effect() -> Result<()> {
    const CALLS: u64 = 5_000;
    let effects = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&effects);
    let handler = Test::boxed(move |call| {
        // Long enough for signals to arrive meanwhile.
        std::thread::sleep(Duration::from_micros(200));
        call.check_alive()?;
        counted.fetch_add(1, SeqCst);
        Ok(Answer::Value(call.word(0).cast_signed()))
    });
    let mut child = Supervised::by(&format!("storm {CALLS}"), vec![handler])?;
    assert_eq!(child.lines()?, ["0"]);
    assert_eq!(effects.load(SeqCst), CALLS);
    Ok(())
}

/// Adds a filter that notifies nobody, and one with a listener, and prints the results.
pub fn stack_filters(_: &[&str]) -> Result<()> {
    use broker::supervise::{filter, rule::Rule};
    let filter = filter::program(&[Rule::always(libc::SYS_getpgid, "getpgid")]);
    let program = [filter.len() as u64, supervised::address(filter.as_slice())];
    let program = supervised::address(&program);
    let operation = libc::SECCOMP_SET_MODE_FILTER.into();
    let listen = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    for flags in [listen, 0] {
        let args = [operation, flags, program, 0, 0];
        println!("{}", supervised::call(libc::SYS_seccomp, args));
    }
    println!("{}", call(libc::SYS_getpgid, 0));
    Ok(())
}

fn filters_that_hide_calls_are_told() -> Result<()> {
    let calls = broker::policy::Calls {
        sysinfo: true,
        ..Default::default()
    };
    let mut child = Supervised::granted("stack_filters", &calls)?;
    let (busy, hidden) = ((-libc::EBUSY).to_string(), (-libc::ENOSYS).to_string());
    assert_eq!(child.lines()?, [&busy, "0", &hidden]);
    child.wait_for_end()?;
    let requests: Vec<_> = child
        .decisions()
        .into_iter()
        .filter_map(|it| it.request)
        .collect();
    assert!(requests[0].contains("EBUSY"), "{requests:?}");
    assert!(requests[1].contains("ENOSYS"), "{requests:?}");
    Ok(())
}

/// Prints the results of getppid(2), of the same as an x32 call, and of i386's getpid(2).
#[cfg(target_arch = "x86_64")]
pub fn foreign(_: &[&str]) -> Result<()> {
    println!("{}", call(libc::SYS_getppid, 0));
    println!("{}", call(libc::SYS_getppid | 0x4000_0000, 0));
    let mut result = 20_u64;
    // SAFETY: needed to make a call of i386. getpid(2) takes no arguments and changes no memory; the
    // kernel may change these registers.
    unsafe {
        core::arch::asm!(
            "int 0x80",
            inout("rax") result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            options(nostack)
        );
    }
    println!("{}", result as i32);
    Ok(())
}

#[cfg(target_arch = "x86_64")]
fn calls_of_other_architectures_are_refused() -> Result<()> {
    use std::os::unix::process::ExitStatusExt as _;

    let handler = Test::boxed(|_| Ok(Answer::Value(1)));
    let mut child = Supervised::by("foreign", vec![handler])?;
    let refused = (-libc::ENOSYS).to_string();
    assert_eq!([child.line()?, child.line()?], ["1", &refused]);
    let line = child.line()?;
    // The kernel may know no such calls at all.
    if line.is_empty() && child.child.wait()?.signal() == Some(libc::SIGSEGV) {
        return Err(testkit::skip("CONFIG_IA32_EMULATION"));
    }
    assert_eq!(line, refused);
    child.wait_for_end()?;
    assert_eq!(child.decisions().len(), 1, "the filter itself refuses");
    Ok(())
}

/// Prints the median nanoseconds of a call.
pub fn time(words: &[&str]) -> Result<()> {
    let (number, rounds): (i64, usize) = (words[0].parse()?, words[1].parse()?);
    let memory = [0_u8; 4096];
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            let started = Instant::now();
            call(number, (&raw const memory).expose_provenance() as u64);
            started.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    println!("{}", times[rounds / 2]);
    Ok(())
}

/// Prints the figure; only a machine in great trouble fails it.
fn an_answer_takes_microseconds() -> Result<()> {
    let scene = format!("time {} 20000", libc::SYS_getppid);
    let handler = Test::boxed(|_| Ok(Answer::Value(1)));
    let answered: u64 = Supervised::by(&scene, vec![handler])?.line()?.parse()?;
    let handler = Test::boxed(|call| call.target().map(|_| Answer::Value(1)));
    let opened: u64 = Supervised::by(&scene, vec![handler])?.line()?.parse()?;
    eprintln!("median of an answered call: {answered} ns; with the target opened: {opened} ns");
    assert!(answered < 1_000_000, "{answered} ns");
    Ok(())
}

pub fn tests() -> Vec<testkit::Test> {
    tests![
        handlers_are_asked_and_their_answers_arrive,
        a_handler_that_continues_leaves_the_call_to_the_next,
        calls_without_a_handler_are_left_to_the_kernel,
        a_panic_fails_the_call_and_nothing_else,
        the_end_of_the_tasks_ends_the_session_and_drops_the_handlers,
        slow_calls_hold_up_nobody_and_all_are_answered,
        a_call_whose_caller_was_killed_is_seen_to_be_gone,
        signals_repeat_no_effect,
        filters_that_hide_calls_are_told,
        #[cfg(target_arch = "x86_64")]
        calls_of_other_architectures_are_refused,
        an_answer_takes_microseconds,
    ]
}
