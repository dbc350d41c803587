//! The reader of counters, as the HTTP process sees it: it asks for pages and hears of new configurations.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::auth::Users;
use super::limit::Limit;
use super::tls;
use crate::exporter::message::{Message, ask};
use crate::exporter::page::Format;
use crate::exporter::web_config::WebConfig;

/// A configuration in force.
#[derive(Debug)]
pub struct Web {
    /// TLS, if it is spoken.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who may ask.
    pub users: Users,
    /// How often.
    pub limit: Option<Limit>,
    /// Headers of responses.
    pub headers: std::collections::BTreeMap<String, String>,
}

impl Web {
    /// Prepares a configuration for use.
    ///
    /// # Errors
    ///
    /// When certificates or keys are none.
    pub fn new(config: &WebConfig) -> Result<Self> {
        Ok(Self {
            tls: config.tls.as_ref().map(tls::server_config).transpose()?,
            users: Users::new(&config.users).context("random bytes")?,
            limit: config
                .rate_limit
                .map(|(interval, burst)| Limit::new(interval, burst, Instant::now())),
            headers: config.headers.clone(),
        })
    }
}

/// The answer to a question.
type Answer = Result<Arc<str>, Arc<str>>;

/// The question for a page in a format, and its last answer.
#[derive(Debug, Default)]
struct Question {
    /// How often it was sent, and answered.
    asked: u64,
    answered: u64,
    answer: Option<Answer>,
}

#[derive(Debug, Default)]
struct State {
    prometheus: Question,
    open_metrics: Question,
}

impl State {
    fn question(&mut self, format: Format) -> &mut Question {
        match format {
            Format::Prometheus => &mut self.prometheus,
            Format::OpenMetrics => &mut self.open_metrics,
        }
    }
}

/// The reader's end of the pair of sockets.
#[derive(Debug)]
pub struct Reader {
    socket: Mutex<UnixStream>,
    state: Mutex<State>,
    changed: Condvar,
    web: RwLock<Arc<Web>>,
}

impl Reader {
    /// The reader behind a socket, whose first message is the configuration.
    ///
    /// # Errors
    ///
    /// When it does not come, or cannot be used.
    pub fn new(socket: UnixStream) -> Result<Self> {
        let mut socket = socket;
        let Some(Message::Config(config)) = Message::receive(&mut socket)? else {
            bail!("the reader sent no configuration")
        };
        Ok(Self {
            socket: Mutex::new(socket),
            state: Mutex::default(),
            changed: Condvar::new(),
            web: RwLock::new(Arc::new(Web::new(&config)?)),
        })
    }

    /// Takes the reader's messages until it ends.
    ///
    /// # Errors
    ///
    /// When a message is none.
    pub fn listen(&self) -> Result<()> {
        let mut socket = self.socket().try_clone()?;
        while let Some(message) = Message::receive(&mut socket)? {
            match message {
                Message::Config(config) => {
                    let web = Arc::new(Web::new(&config)?);
                    *self.web.write().unwrap_or_else(PoisonError::into_inner) = web;
                }
                Message::Page(format, text) => self.take(format, Ok(text.into())),
                Message::Failure(format, words) => self.take(format, Err(words.into())),
            }
        }
        Ok(())
    }

    fn take(&self, format: Format, answer: Answer) {
        let mut state = self.state();
        let question = state.question(format);
        question.answered += 1;
        question.answer = Some(answer);
        self.changed.notify_all();
    }

    /// The configuration in force.
    pub fn web(&self) -> Arc<Web> {
        Arc::clone(&self.web.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A page, as new as the reader makes it. Requests at the same time share one question.
    ///
    /// # Errors
    ///
    /// The reader's words, or that it took too long.
    pub fn page(&self, format: Format, patience: Duration) -> Answer {
        let mut state = self.state();
        let question = state.question(format);
        if question.asked == question.answered {
            // One byte at most is on its way for each format, so this never blocks.
            if self.socket().write_all(&[ask(format)]).is_err() {
                return Err("the reader of counters has ended".into());
            }
            question.asked += 1;
        }
        let wanted = question.asked;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, patience, |state| {
                state.question(format).answered < wanted
            })
            .unwrap_or_else(PoisonError::into_inner);
        let question = state.question(format);
        match &question.answer {
            Some(answer) if question.answered >= wanted => answer.clone(),
            _ => Err(format!(
                "the reader of counters did not answer within {} s: see the log of weir exporter",
                patience.as_secs_f64()
            )
            .into()),
        }
    }

    fn socket(&self) -> MutexGuard<'_, UnixStream> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    const LONG: Duration = Duration::from_secs(20);

    /// A reader, and the other end of its socket.
    fn reader() -> (Arc<Reader>, UnixStream) {
        let (mut theirs, ours) = UnixStream::pair().expect("a pair");
        Message::Config(Box::default())
            .send(&mut theirs)
            .expect("sent");
        let reader = Arc::new(Reader::new(ours).expect("a reader"));
        let listening = Arc::clone(&reader);
        std::thread::spawn(move || listening.listen());
        (reader, theirs)
    }

    #[test]
    fn requests_at_the_same_time_share_one_question() {
        let (reader, mut theirs) = reader();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let reader = Arc::clone(&reader);
                std::thread::spawn(move || reader.page(Format::Prometheus, LONG))
            })
            .collect();
        // As many answers as questions come, until all have theirs.
        let answering = std::thread::spawn(move || {
            let mut byte = [0];
            let mut count = 0;
            while theirs.read_exact(&mut byte).is_ok() {
                // Those that are there by now share it.
                std::thread::sleep(Duration::from_millis(200));
                count += 1;
                let page = Message::Page(Format::Prometheus, "a 1\n".into());
                if page.send(&mut theirs).is_err() {
                    break;
                }
            }
            count
        });
        for thread in threads {
            assert_eq!(thread.join().expect("a thread").as_deref(), Ok("a 1\n"));
        }
        let socket = reader.socket().try_clone().expect("a socket");
        socket
            .shutdown(std::net::Shutdown::Both)
            .expect("shut down");
        let count = answering.join().expect("a thread");
        assert!((1..8).contains(&count), "{count} questions");
    }

    #[test]
    fn a_reader_that_is_late_or_gone_is_an_error() {
        let (reader, mut theirs) = reader();
        let soon = Duration::from_millis(50);
        for _ in 0..3 {
            let words = reader.page(Format::OpenMetrics, soon).expect_err("late");
            assert!(words.contains("within 0.05 s"), "{words}");
        }
        // The question was sent once, and its answer is of use later.
        let failure = Message::Failure(Format::OpenMetrics, "no BTF".into());
        failure.send(&mut theirs).expect("sent");
        let mut byte = [0; 8];
        assert_eq!(theirs.read(&mut byte).expect("a question"), 1);
        while reader.state().open_metrics.answered == 0 {
            std::thread::yield_now();
        }
        drop(theirs);
        let words = reader.page(Format::OpenMetrics, LONG).expect_err("gone");
        assert!(words.contains("has ended"), "{words}");
    }

    #[test]
    fn a_new_configuration_is_taken_over() {
        let (reader, mut theirs) = reader();
        assert!(reader.web().users.is_empty());
        let hash = bcrypt::hash("x", 4).expect("a hash");
        let config = WebConfig {
            users: [("alice".to_owned(), hash)].into(),
            ..WebConfig::default()
        };
        Message::Config(Box::new(config))
            .send(&mut theirs)
            .expect("sent");
        while reader.web().users.is_empty() {
            std::thread::yield_now();
        }
    }
}
