//! The process that answers HTTP. It has no privilege: no capability, another user, no file, and no system
//! call but those on its sockets; and it can ask the reader of counters for a page, and for nothing else.
//!
//! One thread a connection, which the kernel's timeouts end: no runtime, and a short list of system calls.

mod auth;
mod connection;
mod limit;
mod pages;
mod request;
mod server;
mod statistics;
mod tls;

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use broker::confine::{Refused, server::confine};
use broker::daemon::log;
use clap::Args;
use serde_json::json;

use pages::Reader;
use server::Server;

use super::web_config::WebConfig;

/// `weir exporter-http`: standard input is the reader's socket, standard output the socket that listens.
#[derive(Debug, Args)]
pub struct HttpArgs {
    /// User to become
    #[arg(long)]
    pub user: u32,
    /// Group to become
    #[arg(long)]
    pub group: u32,
    /// End by SIGSYS at a system call that the filter lacks, instead of an error
    #[arg(long)]
    pub strict: bool,
}

/// Fails for a configuration that the HTTP process would refuse.
///
/// # Errors
///
/// With the fault.
pub fn check(config: &WebConfig) -> Result<()> {
    pages::Web::new(config).map(drop)
}

/// Answers until the reader ends.
///
/// # Errors
///
/// When the process cannot be confined, or the reader's messages cannot be read.
pub fn run(args: &HttpArgs) -> Result<()> {
    let refused = if args.strict {
        Refused::Kills
    } else {
        Refused::Fails
    };
    let report =
        confine(args.user, args.group, refused).context("the confinement of the HTTP process")?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(socket.context("the reader's socket")?);
    let listener = std::io::stdout().as_fd().try_clone_to_owned();
    let listener = listener.context("the socket that listens")?;
    log::event("http", json!({ "confined": report.layers }));
    let reader = Arc::new(Reader::new(socket)?);
    let server = Server::new(Arc::clone(&reader));
    std::thread::Builder::new()
        .name("weir-accept".into())
        .spawn(move || {
            let errno = server.run(&listener);
            log::event(
                "failed",
                json!({ "action": "accepting connections", "error": format!("{errno:?}") }),
            );
            std::process::exit(1);
        })
        .context("cannot start a thread")?;
    reader.listen()
}
