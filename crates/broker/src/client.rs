//! Questions to a running broker, at its admin socket.

pub use crate::message::ADMIN_SOCKET;
use crate::message::{self, connect_to};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;

/// Most bytes of an answer.
const MOST: u64 = 64 << 20;

/// Its state: leases, sessions, figures.
///
/// # Errors
///
/// Without a broker, and without root.
pub fn status(admin: &Path) -> Result<Value> {
    ask(admin, "weir 2 status\n")
}

/// The holders of a lease; they are killed where the policy says so.
///
/// # Errors
///
/// Without a broker or such a lease, and without root.
pub fn revoke(admin: &Path, lease: u64) -> Result<Value> {
    ask(admin, &format!("weir 2 revoke\nlease={lease}\n"))
}

fn ask(admin: &Path, request: &str) -> Result<Value> {
    let socket = connect_to(admin)?;
    let reply = message::ask(&socket, request).context("the broker refuses")?;
    let mut file = File::from(reply.fd.context("the broker's answer has no file")?);
    file.rewind()?;
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    serde_json::from_str(&text).context("the broker's answer is no JSON")
}
