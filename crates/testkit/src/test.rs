//! Tests, and programs of tests. The output is that of libtest-mimic.

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::thread::CapabilitySet;

use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::process::is_program;

/// Why a test cannot run here. A test that returns it, as its error or among the sources of its error, is reported as
/// ignored, with the reason.
#[derive(Debug, Clone)]
pub struct Skip(Reason);

/// The source of each [`Skip`]: anyhow hides the type of an error, and not of its sources.
#[derive(Debug, Clone)]
struct Reason(String);

impl Skip {
    /// For this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(Reason(reason.into()))
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Skip {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Reason {}

/// The error of a test that cannot run here.
pub fn skip<E: From<Skip>>(reason: impl Into<String>) -> E {
    Skip::new(reason).into()
}

/// A need of a test. Where it is missing, the test is reported as ignored, with the reason.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// The user root.
    Root,
    /// Capabilities of the process.
    Capabilities(CapabilitySet),
    /// A program in `PATH`.
    Program(&'static str),
    /// A file of the kernel.
    File(&'static str),
    /// A feature of the kernel, with the first version that has it, and its probe. A probe that fails is for the test to
    /// report.
    Feature(&'static str, fn() -> hostnet::Result<bool>),
    /// A probe that returns why the need is missing.
    Probe(fn() -> Option<String>),
}

impl Need {
    /// Capabilities that make and enter network namespaces and configure them.
    pub const NAMESPACES: Self =
        Self::Capabilities(CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN));

    /// Those of [`Need::NAMESPACES`], and those for AF_XDP sockets and BPF programs.
    pub const SOCKETS: Self = Self::Capabilities(
        CapabilitySet::NET_ADMIN
            .union(CapabilitySet::SYS_ADMIN)
            .union(CapabilitySet::NET_RAW)
            .union(CapabilitySet::BPF),
    );

    /// Why it is missing here.
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Root => (!rustix::process::geteuid().is_root()).then(|| "needs root".into()),
            Self::Capabilities(needed) => missing_capabilities(*needed),
            Self::Program(name) => {
                (!is_program(name)).then(|| format!("the program {name} is missing"))
            }
            Self::File(path) => {
                let found = std::fs::exists(path).unwrap_or(false);
                (!found).then(|| format!("{path} is missing"))
            }
            Self::Feature(name, probe) => {
                let missing = matches!(probe(), Ok(false));
                missing.then(|| format!("the kernel lacks {name}"))
            }
            Self::Probe(probe) => probe(),
        }
    }
}

fn missing_capabilities(needed: CapabilitySet) -> Option<String> {
    let have = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |c| c.effective);
    let absent = needed.difference(have);
    let names: Vec<_> = absent.iter_names().map(|(it, _)| it).collect();
    (!names.is_empty()).then(|| format!("needs root: CAP_{} missing", names.join(", CAP_")))
}

/// The variable that runs the tests of the second tier, and no others.
pub const DEEP: &str = "WEIR_TEST_DEEP";

/// A test.
pub struct Test {
    name: String,
    needs: Vec<Need>,
    is_for_everyone: bool,
    limit: Option<Duration>,
    is_alone: bool,
    is_on_request: bool,
    is_deep: bool,
    known: Option<String>,
    /// Among the tests of the program.
    place: usize,
    body: Box<dyn FnOnce() -> Result + Send>,
}

impl Test {
    /// A test by its name, as it is shown; [`tests!`](crate::tests) takes the name from the function. The body runs on a
    /// thread of its own, which may change its network namespace.
    pub fn new<O: Outcome>(
        name: impl Into<String>,
        body: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            needs: Vec::new(),
            is_for_everyone: false,
            limit: None,
            is_alone: false,
            is_on_request: false,
            is_deep: false,
            known: None,
            place: 0,
            body: Box::new(|| body().into_result()),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds needs to those of its suite.
    #[must_use]
    pub fn needing(mut self, needs: &[Need]) -> Self {
        self.needs.extend_from_slice(needs);
        self
    }

    /// Frees it of the needs of its suite, such as root.
    #[must_use]
    pub fn for_everyone(self) -> Self {
        Self {
            is_for_everyone: true,
            ..self
        }
    }

    /// Fails it where it does not end in this time, instead of that of its suite.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// Runs it when all other tests have ended, and no other beside it. Such tests keep their order.
    #[must_use]
    pub fn alone(self) -> Self {
        Self {
            is_alone: true,
            ..self
        }
    }

    /// Leaves it out unless the program is run with `--ignored` or `--include-ignored`.
    #[must_use]
    pub fn on_request(self) -> Self {
        Self {
            is_on_request: true,
            ..self
        }
    }

    /// Puts it into the second tier, of long measurements: it runs if [`DEEP`] is set in the environment, or if the filter
    /// of the command line is its name.
    #[must_use]
    pub fn deep(self) -> Self {
        Self {
            is_deep: true,
            ..self
        }
    }

    /// Reports a failure of it as ignored, for this reason: a fault that is not ours. It runs all the same, so that it is
    /// seen when it passes again.
    #[must_use]
    pub fn known_to_fail(self, reason: impl Into<String>) -> Self {
        Self {
            known: Some(reason.into()),
            ..self
        }
    }

    /// With the settings of its suite, where it has none of its own.
    fn in_suite(mut self, suite: &Suite) -> Self {
        self.limit = self.limit.or(Some(suite.limit));
        if !self.is_for_everyone {
            self.needs.splice(..0, suite.needs.iter().copied());
        }
        self
    }

    fn into_trial(self) -> Trial {
        let is_on_request = self.is_on_request;
        let trial = Trial::ignorable_test(self.name.clone(), || self.run());
        trial.with_ignored_flag(is_on_request)
    }

    fn run(self) -> Result<Completion, Failed> {
        if self.is_alone {
            alone(self.place, || self.run_here())
        } else {
            beside_others(|| self.run_here())
        }
    }

    /// Looks for its needs, too, when no other test is in the way: their probes start programs.
    fn run_here(self) -> Result<Completion, Failed> {
        if let Some(reason) = self.needs.iter().find_map(Need::missing) {
            return Ok(Completion::ignored_with(reason));
        }
        let limit = self.limit.unwrap_or(TEST);
        let Err(error) = run_in_time(&self.name, limit, self.body) else {
            return Ok(Completion::Completed);
        };
        match reason(&*error).or(self.known) {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => Err(words(&*error).into()),
        }
    }
}

/// What the body of a test returns: nothing, or a result with an error of any kind.
pub trait Outcome {
    /// As a result.
    fn into_result(self) -> Result;
}

impl Outcome for () {
    fn into_result(self) -> Result {
        Ok(self)
    }
}

impl<E: Into<Error>> Outcome for Result<(), E> {
    fn into_result(self) -> Result {
        self.map_err(Into::into)
    }
}

/// A [`Test`] of each function, under its module's and its own name.
#[macro_export]
macro_rules! tests {
    ($($(#[$if:meta])* $name:ident),* $(,)?) => {
        vec![$($(#[$if])* $crate::Test::new(concat!(module_path!(), "::", stringify!($name)), $name)),*]
    };
}

/// The same for tests beside which no other test may run.
#[macro_export]
macro_rules! tests_alone {
    ($($names:tt)*) => {
        $crate::tests![$($names)*].into_iter().map($crate::Test::alone).collect::<Vec<_>>()
    };
}

/// The limit of a test.
const TEST: Duration = Duration::from_secs(120);

/// The settings of a program of tests.
#[derive(Debug)]
pub struct Suite {
    needs: Vec<Need>,
    limit: Duration,
}

impl Default for Suite {
    fn default() -> Self {
        Self::new()
    }
}

impl Suite {
    /// No needs, and a limit of 120 s for each test.
    pub fn new() -> Self {
        Self {
            needs: Vec::new(),
            limit: TEST,
        }
    }

    /// Adds needs of each test that is not [for everyone](Test::for_everyone).
    #[must_use]
    pub fn needing(mut self, needs: &[Need]) -> Self {
        self.needs.extend_from_slice(needs);
        self
    }

    /// The limit of each test that has none of its own.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Runs the tests that the command line asks for.
    pub fn run(&self, tests: impl IntoIterator<Item = Test>) -> ExitCode {
        self.run_with(Arguments::from_args(), tests)
    }

    /// Runs the tests that these arguments ask for, two at a time for each CPU unless they say another number.
    pub fn run_with(
        &self,
        mut arguments: Arguments,
        tests: impl IntoIterator<Item = Test>,
    ) -> ExitCode {
        arguments.test_threads = arguments.test_threads.or(Some(at_once()));
        let deep = std::env::var_os(DEEP).is_some();
        let tests = selected(tests.into_iter().collect(), &arguments, deep);
        let tests = tests.into_iter().map(|test| test.in_suite(self));
        let trials = tests.map(Test::into_trial);
        libtest_mimic::run(&arguments, trials.collect()).exit_code()
    }
}

/// Tests that run at the same time: most of them wait most of the time.
fn at_once() -> usize {
    2 * thread::available_parallelism().map_or(1, usize::from)
}

/// Those of one tier, without those on request unless they are requested; those that are alone last, where no other has to
/// wait for them.
fn selected(mut tests: Vec<Test>, arguments: &Arguments, deep: bool) -> Vec<Test> {
    let requested = arguments.ignored || arguments.include_ignored;
    let is_named = |test: &Test| arguments.filter.as_ref() == Some(&test.name);
    tests.retain(|test| requested || !test.is_on_request);
    tests.retain(|test| deep == test.is_deep || is_named(test));
    tests.sort_by_key(|test| test.is_alone);
    for (place, test) in tests.iter_mut().enumerate() {
        test.place = place;
    }
    tests
}

/// Held by each test that runs: shared, or by one that is alone.
static MACHINE: RwLock<()> = RwLock::new(());

fn beside_others<T>(run: impl FnOnce() -> T) -> T {
    // A test that panicked has left nothing in the lock.
    let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// The places of the tests that run alone, or wait for that.
fn waiting() -> MutexGuard<'static, BTreeSet<usize>> {
    static WAITING: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test alone, after those that wait for the same and have an earlier place.
fn alone<T>(place: usize, run: impl FnOnce() -> T) -> T {
    /// Gives the place up, after a panic too, so that the next test begins.
    struct Place(usize);
    impl Drop for Place {
        fn drop(&mut self) {
            waiting().remove(&self.0);
        }
    }
    waiting().insert(place);
    let _place = Place(place);
    while waiting().first() != Some(&place) {
        thread::sleep(Duration::from_millis(5));
    }
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// Runs a body on a thread of its own. One that does not end is left behind.
fn run_in_time(name: &str, limit: Duration, body: Box<dyn FnOnce() -> Result + Send>) -> Result {
    let (done, result) = channel();
    let thread = thread::Builder::new().name(name.into());
    let thread = thread.spawn(move || {
        // After the limit no receiver is left.
        let _ = done.send(body());
    })?;
    match Limit::new(limit).receive(&result) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            let words = "on an idle machine; WEIR_TEST_SCALE=2 doubles the limits";
            Err(format!("no end within {limit:?} {words}").into())
        }
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().expect_err("it ended without a result");
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(words.unwrap_or_else(|| "panicked".into()).into())
        }
    }
}

fn chain<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The reason of a [`Skip`] in an error or among its sources.
fn reason(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let found = chain(error).find_map(|error| error.downcast_ref::<Reason>());
    found.map(ToString::to_string)
}

/// The words of an error and of its sources, unless the words before have them.
fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut all = String::new();
    for error in chain(error) {
        let words = error.to_string();
        if all.is_empty() {
            all = words;
        } else if !all.contains(&words) {
            all += "\n  because: ";
            all += &words;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// As anyhow wraps an error: its sources are those of the error, and its type is hidden.
    #[derive(Debug)]
    struct Hiding(Skip);

    impl fmt::Display for Hiding {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl std::error::Error for Hiding {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.0.source()
        }
    }

    fn run(body: impl FnOnce() -> Result + Send + 'static) -> Result {
        run_in_time("a test", Duration::from_secs(60), Box::new(body))
    }

    #[test]
    fn a_skip_is_found_in_an_error_and_among_its_sources() {
        let error: Error = skip::<Error>("no card");
        assert_eq!(reason(&*error).as_deref(), Some("no card"));
        let error: Error = Hiding(Skip::new("no card")).into();
        assert_eq!(reason(&*error).as_deref(), Some("no card"));
        let error: Error = "no card".into();
        assert_eq!(reason(&*error), None);
        assert_eq!(words(&*error), "no card");
    }

    #[test]
    fn a_deep_test_is_listed_by_its_name_or_with_its_tier() {
        let listed = |filter: Option<&str>, deep| {
            let test = Test::new("truth::softirq", || Ok::<(), Error>(())).deep();
            let arguments = Arguments {
                filter: filter.map(Into::into),
                ..Arguments::default()
            };
            selected(vec![test], &arguments, deep).len() == 1
        };
        assert!(!listed(None, false));
        assert!(!listed(Some("truth"), false));
        assert!(listed(Some("truth::softirq"), false));
        assert!(listed(Some("truth"), true));
    }

    #[test]
    fn a_panic_is_a_failure_with_its_words() {
        let error = run(|| panic!("gone wrong")).expect_err("a failure");
        assert_eq!(error.to_string(), "gone wrong");
        run(|| Ok(())).expect("no failure");
    }

    #[test]
    fn a_body_that_does_not_end_is_a_failure() {
        let endless = Box::new(|| {
            loop {
                thread::park();
            }
        });
        let error = run_in_time("endless", Duration::from_millis(1), endless);
        let error = error.expect_err("a failure").to_string();
        assert!(error.contains("no end within 1ms"), "{error}");
    }

    #[test]
    fn a_missing_need_has_its_reason() {
        let missing = Need::Program("no-such-program").missing();
        assert_eq!(
            missing.as_deref(),
            Some("the program no-such-program is missing")
        );
        assert_eq!(Need::File("/proc").missing(), None);
        assert_eq!(Need::Feature("it", || Ok(true)).missing(), None);
        let missing = Need::Feature("it", || Ok(false)).missing();
        assert_eq!(missing.as_deref(), Some("the kernel lacks it"));
        assert!(
            Need::Capabilities(CapabilitySet::all())
                .missing()
                .is_none_or(|it| it.contains("CAP_"))
        );
    }

    /// Whether a test that fails ran, and was reported as a failure.
    fn outcome(of: impl FnOnce(Test) -> Test) -> (bool, bool) {
        let ran = Arc::new(AtomicBool::new(false));
        let body = {
            let ran = Arc::clone(&ran);
            move || -> Result {
                ran.store(true, Ordering::SeqCst);
                Err("broken".into())
            }
        };
        let failed = of(Test::new("it", body)).run().is_err();
        (ran.load(Ordering::SeqCst), failed)
    }

    #[test]
    fn a_test_runs_where_its_needs_are_met() {
        let never = Need::Probe(|| Some("never".into()));
        assert_eq!(outcome(|test| test), (true, true));
        assert_eq!(outcome(Test::alone), (true, true));
        assert_eq!(outcome(|test| test.needing(&[never])), (false, false));
        assert_eq!(
            outcome(|test| test.known_to_fail("a driver")),
            (true, false)
        );
    }

    #[test]
    fn tests_are_left_out_until_requested_and_the_lonely_come_last() {
        let test = |name: &str| Test::new(name, || ());
        let tests = || vec![test("one").on_request(), test("two").alone(), test("three")];
        let names = |arguments| {
            let selected = selected(tests(), &arguments, false);
            selected
                .into_iter()
                .map(|test| test.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Arguments::default()), ["three", "two"]);
        let all = Arguments {
            include_ignored: true,
            ..Arguments::default()
        };
        assert_eq!(names(all), ["one", "three", "two"]);
    }

    #[test]
    fn no_test_runs_beside_one_that_is_alone() {
        static RUNNING: AtomicBool = AtomicBool::new(false);
        let lonely = |place| {
            alone(place, || {
                assert!(!RUNNING.swap(true, Ordering::SeqCst));
                thread::sleep(Duration::from_millis(20));
                RUNNING.store(false, Ordering::SeqCst);
            });
        };
        let other = || beside_others(|| assert!(!RUNNING.load(Ordering::SeqCst)));
        thread::scope(|scope| {
            for place in 100..104 {
                scope.spawn(move || lonely(place));
                scope.spawn(other);
            }
        });
    }

    #[test]
    fn a_panic_alone_lets_the_next_one_begin() {
        let panicked = thread::spawn(|| alone(300, || panic!("on purpose"))).join();
        assert!(panicked.is_err());
        assert_eq!(alone(301, || 7), 7);
    }

    #[test]
    fn tests_that_are_alone_keep_their_order() {
        let order = Mutex::new(Vec::new());
        let note = |place| alone(place, || order.lock().expect("no panic").push(place));
        thread::scope(|scope| {
            // No test that is alone begins meanwhile.
            let machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
            for place in [200, 202, 201] {
                scope.spawn(move || note(place));
                while !waiting().contains(&place) {
                    thread::yield_now();
                }
            }
            drop(machine);
        });
        assert_eq!(*order.lock().expect("no panic"), [200, 201, 202]);
    }
}
