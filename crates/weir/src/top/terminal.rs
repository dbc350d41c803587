//! The terminal: taken for drawing and keys, and given back however this ends.

use std::collections::VecDeque;
use std::env;
use std::io::{self, IsTerminal as _, Stdout, Write as _, stdin, stdout};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::{Position, Rect};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::{flag, low_level};

use super::key::{Decoder, Key};
use crate::process::stop::StopSignal;

/// The time in which the rest of a key's bytes comes.
const REST_OF_A_KEY: Duration = Duration::from_millis(50);

/// A terminal of one's own.
pub struct Terminal {
    /// Its drop would show the cursor, and panic on a standard error that is gone.
    screen: ManuallyDrop<ratatui::Terminal<CrosstermBackend<Stdout>>>,
    signals: Signals,
    decoder: Decoder,
    keys: VecDeque<Key>,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A key.
    Key(Key),
    /// The descriptor is readable.
    Readable,
    /// Everything is to be drawn.
    Redraw,
    /// The time is over.
    Timeout,
    /// A signal asked for the end.
    Stopped,
    /// There is no terminal any more.
    Gone,
}

/// The signals that came.
struct Signals {
    stop: StopSignal,
    hangup: Arc<AtomicBool>,
    suspend: Arc<AtomicBool>,
    resume: Arc<AtomicBool>,
    resize: Arc<AtomicBool>,
    /// Readable after each of them.
    bell: UnixStream,
}

/// Whether colours are wanted: not with a `NO_COLOR` that is not empty (no-color.org).
pub fn has_colour() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether there is a terminal to draw on.
///
/// # Errors
///
/// Without one: the reason, and the flags that need none.
pub fn check() -> Result<()> {
    const WITHOUT: &str =
        "`weir top --once` prints a table without one, and --format json is for scripts";
    if !stdin().is_terminal() || !stdout().is_terminal() {
        bail!("standard input and output must be a terminal: {WITHOUT}");
    }
    let kind = env::var("TERM").unwrap_or_default();
    if kind.is_empty() || kind == "dumb" {
        bail!("the terminal of TERM='{kind}' cannot place the cursor: {WITHOUT}");
    }
    Ok(())
}

impl Terminal {
    /// Takes the terminal.
    pub fn open() -> Result<Self> {
        check()?;
        let signals = Signals::listen()?;
        restore_in_a_panic();
        enter().context("cannot take the terminal")?;
        let screen = ratatui::Terminal::new(CrosstermBackend::new(stdout()));
        let screen = screen.inspect_err(|_| leave());
        Ok(Self {
            screen: ManuallyDrop::new(screen.context("cannot draw on the terminal")?),
            signals,
            decoder: Decoder::default(),
            keys: VecDeque::new(),
        })
    }

    /// Draws.
    pub fn draw(&mut self, picture: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.screen.draw(picture).map(drop)
    }

    /// Makes the next drawing a whole one. ratatui's own way would ask the terminal where the cursor is, and wait
    /// for the answer.
    pub fn clear(&mut self) -> io::Result<()> {
        let size = self.screen.size()?;
        self.screen.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Gives the terminal back, stops this process until it is continued, and takes the terminal again.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        kill_process(getpid(), Signal::STOP)?;
        self.signals.resume.store(false, Ordering::Relaxed);
        enter()?;
        self.clear()
    }

    /// Waits for a key, a signal, the descriptor, or the end of the time.
    pub fn wait(
        &mut self,
        readable: Option<BorrowedFd<'_>>,
        limit: Option<Duration>,
    ) -> Result<Event> {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            if let Some(key) = self.keys.pop_front() {
                return Ok(Event::Key(key));
            }
            if let Some(event) = self.signalled()? {
                return Ok(event);
            }
            let rest_of_a_key = self.decoder.waits().then_some(REST_OF_A_KEY);
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let wait = left.into_iter().chain(rest_of_a_key).min();
            match self.ready(readable, wait)? {
                Some(Event::Timeout) if self.decoder.waits() => {
                    self.keys.extend(self.decoder.give_up());
                }
                Some(event) => return Ok(event),
                None => {}
            }
        }
    }

    fn ready(
        &mut self,
        readable: Option<BorrowedFd<'_>>,
        wait: Option<Duration>,
    ) -> Result<Option<Event>> {
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let input = stdin();
        let input = input.as_fd();
        let mut ready = vec![
            PollFd::from_borrowed_fd(input, PollFlags::IN),
            PollFd::new(&self.signals.bell, PollFlags::IN),
        ];
        ready.extend(readable.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
        match poll(&mut ready, wait.as_ref()) {
            Ok(0) => return Ok(Some(Event::Timeout)),
            Err(Errno::INTR) => return Ok(None),
            polled => polled.context("cannot wait for the terminal")?,
        };
        let came: Vec<_> = ready.iter().map(PollFd::revents).collect();
        drop(ready);
        if came[0].intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(Some(Event::Gone));
        }
        if came[0].contains(PollFlags::IN) {
            let mut bytes = [0; 256];
            match rustix::io::read(input, &mut bytes) {
                Ok(0) => return Ok(Some(Event::Gone)),
                Ok(read) => self.keys.extend(self.decoder.keys(&bytes[..read])),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return Ok(Some(Event::Gone)),
            }
            return Ok(None);
        }
        if !came[1].is_empty() {
            self.signals.drain();
            return Ok(None);
        }
        Ok(came
            .get(2)
            .is_some_and(|it| !it.is_empty())
            .then_some(Event::Readable))
    }

    fn signalled(&mut self) -> Result<Option<Event>> {
        let take = |flag: &AtomicBool| flag.swap(false, Ordering::Relaxed);
        let signals = &self.signals;
        if take(&signals.hangup) {
            return Ok(Some(Event::Gone));
        }
        if signals.stop.is_raised() {
            return Ok(Some(Event::Stopped));
        }
        if take(&signals.suspend) {
            self.suspend().context("cannot take the terminal again")?;
            return Ok(Some(Event::Redraw));
        }
        if take(&signals.resume) {
            // A SIGSTOP is not seen before; the shell may have changed the terminal meanwhile.
            enter().context("cannot take the terminal again")?;
            self.clear().context("cannot draw on the terminal")?;
            return Ok(Some(Event::Redraw));
        }
        Ok(take(&signals.resize).then_some(Event::Redraw))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

impl Signals {
    fn listen() -> Result<Self> {
        let stop = StopSignal::listen()?;
        let (bell, button) = UnixStream::pair().context("cannot make a pair of sockets")?;
        bell.set_nonblocking(true)
            .context("cannot set up a socket")?;
        let flags: [Arc<AtomicBool>; 4] = Default::default();
        let signals = [SIGHUP, SIGTSTP, SIGCONT, SIGWINCH];
        let failed = "cannot handle signals";
        for (signal, flag) in signals.into_iter().zip(&flags) {
            flag::register(signal, Arc::clone(flag)).context(failed)?;
        }
        // Behind the flags: who hears the bell finds them set.
        for signal in [SIGINT, SIGTERM].into_iter().chain(signals) {
            let button = button.try_clone().context(failed)?;
            low_level::pipe::register(signal, button).context(failed)?;
        }
        let [hangup, suspend, resume, resize] = flags;
        Ok(Self {
            stop,
            hangup,
            suspend,
            resume,
            resize,
            bell,
        })
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.bell, &mut bytes).is_ok_and(|read| read > 0) {}
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, cursor::Hide)
}

/// Gives the terminal back as it was. A terminal that is gone needs nothing.
fn leave() {
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// Gives the terminal back before a panic is printed.
fn restore_in_a_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            leave();
            print(about);
        }));
    });
}
