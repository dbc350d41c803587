//! Counters of the HTTP process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::request::Gone;
use crate::exporter::families::{ABANDONED, RESPONSES};
use crate::exporter::page::{Format, Page};

/// Responses by their status, and connections that had none.
#[derive(Debug, Default)]
pub struct Statistics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    responses: BTreeMap<u16, u64>,
    abandoned: BTreeMap<&'static str, u64>,
}

impl Statistics {
    /// Counts a response.
    pub fn answered(&self, status: u16) {
        *self.counts().responses.entry(status).or_default() += 1;
    }

    /// Counts a connection without a response.
    pub fn abandoned(&self, gone: Gone) {
        let cause = match gone {
            Gone::Slow => "slow",
            Gone::Closed => "closed",
            Gone::Tls => "tls",
        };
        *self.counts().abandoned.entry(cause).or_default() += 1;
    }

    /// Counts a connection that made room for a newer one.
    pub fn crowded_out(&self) {
        *self.counts().abandoned.entry("crowded").or_default() += 1;
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its part of the page.
    pub fn text(&self, format: Format) -> String {
        let counts = self.counts();
        let mut page = Page::new(format);
        page.family(&RESPONSES);
        for status in [200, 400, 401, 404, 405, 429, 431, 503] {
            let count = counts.responses.get(&status).copied().unwrap_or(0);
            page.sample(&RESPONSES, &[status.to_string()], count);
        }
        page.family(&ABANDONED);
        for cause in ["slow", "closed", "tls", "crowded"] {
            let count = counts.abandoned.get(cause).copied().unwrap_or(0);
            page.sample(&ABANDONED, &[cause.into()], count);
        }
        page.into_text()
    }
}
