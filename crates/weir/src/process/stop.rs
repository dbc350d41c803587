//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// The exit code after a signal, as shells show it for SIGINT.
pub const EXIT_CODE: u8 = 130;

/// Whether someone wants the bench to end.
#[derive(Debug, Default)]
pub struct StopSignal {
    raised: Arc<AtomicBool>,
}

/// What a wait that is cut short returns.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl StopSignal {
    /// From now on the first signal is noted, and the second one ends the process at once.
    ///
    /// SIGHUP stays as it was inherited, since nohup(1) has it ignored. Where it is not, it ends
    /// the process at once, and the kernel takes down the rest, as after a `kill -9`.
    pub fn listen() -> Result<Self> {
        let stop = Self::default();
        let raised = &stop.raised;
        for signal in [SIGINT, SIGTERM] {
            // The order counts: the first of the two sees what the second one noted last time.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                EXIT_CODE.into(),
                Arc::clone(raised),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(raised)))
            .context("cannot wait for signals")?;
        }
        Ok(stop)
    }

    /// Whether there was a signal.
    pub fn is_raised(&self) -> bool {
        // Relaxed: the flag carries no data.
        self.raised.load(Ordering::Relaxed)
    }

    /// An error if there was a signal.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_raised() {
            return Err(Interrupted);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }
}
