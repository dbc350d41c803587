//! `weir exporter`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::exporter::{self, Address, Flags, Source};
use crate::ledger::read::{Reader, Scope};
use crate::ledger::{Sheet, Snapshot, balance};

const HELP: &str = "\
Examples:
  weir exporter
      Answer http://127.0.0.1:9347/metrics to programs of this host
  weir exporter --listen '[::]:9347' --web-config /etc/weir/web.yml
      Answer other hosts, by TLS and with a password
  weir exporter --listen unix:/run/weir/exporter.sock --group prometheus
      Answer at a Unix socket: curl --unix-socket /run/weir/exporter.sock http://localhost/metrics

It runs in the foreground, logs JSON lines to standard error, reads the web configuration again when one of
its files changes, and ends on SIGTERM and SIGINT.

Exit status:
  0  ended by a signal
  1  the address or the web configuration is refused, or one of the two processes failed
  2  invalid arguments";

/// `weir exporter`
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct ExporterArgs {
    /// Address and port, or `unix:/PATH`
    #[arg(long, value_name = "ADDRESS", default_value = exporter::DEFAULT)]
    pub listen: Address,

    /// Group that may connect to a Unix socket [default: root alone]
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,

    /// TLS and passwords, in the format of Prometheus' exporter-toolkit
    #[arg(long, value_name = "FILE")]
    pub web_config: Option<PathBuf>,

    /// Answer other hosts without TLS and passwords
    #[arg(long)]
    pub allow_insecure: bool,

    /// Watch these network namespaces: a name of `ip netns`, a file, the id of a process or container [default: all]
    #[arg(long, value_name = "NETNS", num_args = 1..)]
    pub netns: Vec<String>,

    /// Most series of the page; further values are added up in series `other`
    #[arg(long, value_name = "N", default_value_t = exporter::DEFAULT_SERIES, value_parser = series)]
    pub series: usize,

    /// End the HTTP process at a system call that its filter lacks, for tests
    #[arg(long, hide = true)]
    pub strict: bool,
}

fn series(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(series) if (500..=20_000).contains(&series) => Ok(series),
        _ => Err("choose from 500 to 20000 series".into()),
    }
}

/// Runs `weir exporter`.
pub fn run(args: &ExporterArgs) -> Result<()> {
    let flags = Flags {
        listen: args.listen.clone(),
        group: args.group.clone(),
        web_config: args.web_config.clone(),
        allow_insecure: args.allow_insecure,
        series: args.series,
        strict: args.strict,
    };
    let scope = Scope {
        all: args.netns.is_empty(),
        namespaces: args.netns.clone(),
        devices: Vec::new(),
    };
    exporter::run(
        &flags,
        Host {
            scope,
            reader: None,
        },
    )
}

/// This host.
struct Host {
    scope: Scope,
    reader: Option<Reader>,
}

impl Source for Host {
    fn snapshot(&mut self) -> Result<Snapshot> {
        let scope = &self.scope;
        let reader = self
            .reader
            .get_or_insert_with(|| Reader::open(scope.clone(), false));
        reader.snapshot()
    }

    fn open(&mut self) -> Result<()> {
        // The earlier one first: two would count each event twice in cost.
        self.reader = None;
        self.reader = Some(Reader::open(self.scope.clone(), false));
        Ok(())
    }

    fn balance(&self, before: &Snapshot, after: &Snapshot) -> Result<Sheet> {
        balance(before, after)
    }
}
