//! The log of decisions: one line of JSON for each call.

use super::metrics::Outcome;
use crate::lines::Lines;
use serde_json::json;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A call, and how it ended.
#[derive(Debug, Clone)]
pub struct Decision {
    /// When it arrived.
    pub time: SystemTime,
    /// Name of the tenant.
    pub tenant: Arc<str>,
    /// The caller's thread id in this process's pid namespace.
    pub tid: u32,
    /// The handler that decided; the last of those asked.
    pub handler: &'static str,
    /// The call's number.
    pub call: i32,
    /// Its arguments.
    pub args: [u64; 6],
    /// The request in words, where the handler gives them.
    pub request: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// The errno of a refused call.
    pub errno: i32,
    /// From its arrival to the answer.
    pub took: Duration,
}

impl Decision {
    /// The line of JSON, without its end.
    pub fn to_json(&self) -> String {
        let time = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let verdict = match self.outcome {
            Outcome::Answered => "answered",
            Outcome::Refused => "refused",
            Outcome::Continued => "continued",
            Outcome::Gone => "gone",
        };
        let request = self.request.clone().unwrap_or_else(|| {
            let args: Vec<_> = self.args.iter().map(|arg| format!("{arg:#x}")).collect();
            args.join(" ")
        });
        let mut line = json!({
            "time": time.as_secs_f64(),
            "tenant": &*self.tenant,
            "tid": self.tid,
            "handler": self.handler,
            "call": self.call,
            "request": request,
            "verdict": verdict,
            "microseconds": self.took.as_nanos() as f64 / 1e3,
        });
        if self.errno != 0
            && let Some(line) = line.as_object_mut()
        {
            let words = std::io::Error::from_raw_os_error(self.errno);
            line.insert("error".to_owned(), words.to_string().into());
        }
        line.to_string()
    }
}

/// Receiver of decisions. It is called between two calls of a task that waits: it must not block.
pub trait Log: Send + Sync {
    /// Takes a decision.
    fn decision(&self, decision: Decision);
}

/// A bounded queue in front of a writer. Decisions that find it full, or of a tenant that has many, are dropped
/// and counted.
#[derive(Debug)]
pub struct Queue {
    sender: SyncSender<Decision>,
    dropped: AtomicU64,
    lines: Mutex<Lines>,
}

/// Decisions that wait for the writer.
const QUEUE: usize = 4096;

/// How long the writer gathers lines: it is woken for the first of them only.
const GATHER: Duration = Duration::from_millis(20);

impl Queue {
    /// A queue whose lines a thread of its own writes, until the queue is dropped. Dropped decisions
    /// are told in a line of their own.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn start(writer: impl Write + Send + 'static) -> std::io::Result<Arc<Self>> {
        let (sender, receiver) = sync_channel(QUEUE);
        let queue = Arc::new(Self {
            sender,
            dropped: AtomicU64::new(0),
            lines: Mutex::new(Lines::new()),
        });
        let weak = Arc::downgrade(&queue);
        let dropped = move || weak.upgrade().map_or(0, |queue| queue.dropped());
        std::thread::Builder::new()
            .name("log".to_owned())
            .stack_size(256 << 10)
            .spawn(move || write_lines(&receiver, writer, dropped))?;
        Ok(queue)
    }

    /// Decisions that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

impl Log for Queue {
    fn decision(&self, decision: Decision) {
        let second = decision.time.duration_since(UNIX_EPOCH);
        let second = second.unwrap_or_default().as_secs();
        let has_room = {
            // Each change is one step.
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.admit(second, &decision.tenant)
        };
        if !has_room || self.sender.try_send(decision).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

fn write_lines(receiver: &Receiver<Decision>, mut writer: impl Write, dropped: impl Fn() -> u64) {
    let mut told = 0;
    while let Ok(first) = receiver.recv() {
        std::thread::sleep(GATHER);
        let mut lines = String::new();
        for decision in std::iter::once(first).chain(receiver.try_iter().take(QUEUE)) {
            lines += &decision.to_json();
            lines.push('\n');
        }
        let lost = dropped().saturating_sub(told);
        if lost > 0 {
            told += lost;
            lines += &json!({ "dropped": lost }).to_string();
            lines.push('\n');
        }
        // A log that cannot be written must not stop the supervisor, and nobody could be told.
        let _ = writer.write_all(lines.as_bytes());
        let _ = writer.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Instant;

    fn decision(request: Option<&str>) -> Decision {
        Decision {
            time: UNIX_EPOCH + Duration::from_millis(1500),
            tenant: "web".into(),
            tid: 7,
            handler: "mknod",
            call: 133,
            args: [1, 0x10, 0, 0, 0, 0],
            request: request.map(Into::into),
            outcome: Outcome::Refused,
            errno: libc::EPERM,
            took: Duration::from_nanos(2500),
        }
    }

    #[test]
    fn a_line_has_who_what_why_and_how_long() {
        let line = decision(Some("character device 1:3 at \"x\"")).to_json();
        let parsed: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let expected = json!({
            "time": 1.5, "tenant": "web", "tid": 7, "handler": "mknod", "call": 133,
            "request": "character device 1:3 at \"x\"", "verdict": "refused",
            "error": "Operation not permitted (os error 1)", "microseconds": 2.5,
        });
        assert_eq!(parsed, expected);
        assert!(
            decision(None)
                .to_json()
                .contains("\"0x1 0x10 0x0 0x0 0x0 0x0\"")
        );
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn decisions_beyond_a_tenants_lines_are_counted_and_told() {
        let written = Shared::default();
        let queue = Queue::start(written.clone()).expect("a thread");
        let many = 3 * QUEUE;
        for _ in 0..many {
            queue.decision(decision(None));
        }
        let other = Decision {
            tenant: "other".into(),
            ..decision(None)
        };
        queue.decision(other);
        let lost = queue.dropped();
        assert_eq!(lost, many as u64 - 20);
        let end = Instant::now() + Duration::from_secs(20);
        let lines = || -> Vec<serde_json::Value> {
            let bytes = written.0.lock().expect("no panic").clone();
            let text = String::from_utf8(bytes).expect("UTF-8");
            let parse = |line| serde_json::from_str(line).expect("JSON");
            text.lines().map(parse).collect()
        };
        let told = || -> u64 { lines().iter().filter_map(|it| it["dropped"].as_u64()).sum() };
        let decisions = |tenant: &str| lines().iter().filter(|it| it["tenant"] == tenant).count();
        while told() < lost || decisions("other") == 0 {
            assert!(Instant::now() < end, "{} are told", told());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((told(), decisions("web")), (lost, 20));
    }
}
