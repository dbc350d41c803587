//! The accelerator: attached, killed, silent.

use std::time::Duration;

use anyhow::{Context as _, Result};
use weir::switch::LIFE;

use super::Round;
use crate::switch_fuzz::accelerate::Accelerator;
use crate::switch_fuzz::fuzz::Mode;

impl Round<'_> {
    pub(super) fn attach(&mut self) -> Result<()> {
        if matches!(self.options.mode, Mode::Plain | Mode::Sabotaged) {
            return Ok(());
        }
        let broken = self.options.mode.defect();
        // The old one detaches first.
        self.accelerator = None;
        self.is_silent = false;
        self.attached.clone_from(&self.hooks);
        self.start(broken)
    }

    pub(super) fn start(&mut self, broken: Option<&str>) -> Result<()> {
        let keep = self.outliving.keep()?;
        let inside = self.sides[0].inside();
        let accelerator = Accelerator::attach(inside, &self.attached, broken, &keep);
        self.accelerator = Some(accelerator.context("cannot attach to the bridge")?);
        self.sides[0].thread_napi()
    }

    /// A daemon that is killed.
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(accelerator) = self.accelerator.take() {
            accelerator.leave()?;
            self.is_killed = true;
        }
        Ok(())
    }

    /// Starts the daemon again that was killed.
    pub(super) fn revive(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_killed) {
            self.is_silent = false;
            self.start(self.options.mode.defect())
                .context("cannot attach again after a kill")?;
            self.settle()?;
        }
        Ok(())
    }

    /// A daemon that hangs: the programs leave all frames to the kernel once they have noticed.
    pub(super) fn silence(&mut self, on: bool) -> Result<()> {
        let Some(accelerator) = &self.accelerator else {
            return Ok(());
        };
        accelerator.silence(on)?;
        self.is_silent = on;
        if on {
            // Their clock has steps of some milliseconds.
            std::thread::sleep(LIFE + Duration::from_millis(50));
        }
        Ok(())
    }

    pub(super) fn settle(&mut self) -> Result<()> {
        match &self.accelerator {
            Some(accelerator) if !self.is_silent => accelerator
                .settle()
                .context("the accelerator does not settle"),
            _ => Ok(()),
        }
    }
}
