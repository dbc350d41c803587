//! `weir filter explain`.

use std::fmt::Write as _;
use std::io::{stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{ArgGroup, Args, ValueEnum};
use pf_filter::eval::Engine;
use pf_filter::packet::{Packet, WordError};
use pf_filter::rule::Direction;

use super::answer::{COULD_NOT, answer, complain, print};
use super::flags::ReadArgs;
use crate::cli::output;
use crate::filter::capture::{self, Frame};
use crate::filter::explain::Report;
use crate::filter::rules::Rules;
use crate::filter::text::{Painter, many};

const AFTER_HELP: &str = "\
Examples:
  weir filter explain pf.conf in on em0 proto tcp from 192.0.2.7 to 198.51.100.2 port 443
      The verdict on a connection from the web
  weir filter explain pf.conf 'out on em0 proto icmp from 10.0.0.5 to 192.0.2.7 icmp-type echoreq'
      The packet as one word
  weir filter explain pf.conf --pcap pflog
      The verdicts of these rules on packets that pf logged
  weir filter explain pf.conf --pcap eth0.pcap --interface em0 --direction in --verbose
      A capture that tells neither, with all reasons

A packet in words has a direction, an interface, a protocol and two addresses, TCP and UDP also a destination
port. Further words: flags SA, icmp-type, code, length, tos, ttl, tag, user, group, received-on, options, and
mistakes are named. TCP has `flags S` without a word of it.

The packets of a capture meet the states that those before them made, at the capture's times. Of frames that are not
IP pf sees nothing: they are counted.

Exit status:
  0  the packet passes; of a capture, all
  1  it is blocked; of a capture, some are
  2  a file cannot be read, the rules have errors, or invalid arguments";

/// `weir filter explain`
#[derive(Debug, Args)]
#[command(
    after_long_help = AFTER_HELP,
    group(ArgGroup::new("what").args(["packet", "hex", "pcap"]).required(true))
)]
pub struct ExplainArgs {
    /// Rules, such as /etc/pf.conf; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A packet in words
    #[arg(value_name = "PACKET")]
    pub packet: Vec<String>,
    /// An IP packet as hexadecimal digits, blanks and colons between them allowed
    #[arg(long, value_name = "DIGITS", requires = "interface")]
    pub hex: Option<String>,
    /// Every packet of a pcap or pcapng file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Direction of the packets of --hex [default: in] and --pcap [default: as the file tells]
    #[arg(long, value_enum, conflicts_with = "packet")]
    pub direction: Option<DirectionArgument>,
    /// Interface of the packets of --hex and --pcap [default: as the file tells]
    #[arg(long, value_name = "NAME", conflicts_with = "packet")]
    pub interface: Option<String>,
    /// All reasons for each packet of a capture, instead of a line
    #[arg(short, long, requires = "pcap")]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub read: ReadArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    pub format: TextOrJson,
}

/// A value of `--direction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DirectionArgument {
    /// They arrive
    In,
    /// They leave
    Out,
}

/// A format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    /// Text
    Text,
    /// A JSON object; of a capture one a line
    Json,
}

/// Runs `weir filter explain`.
pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let rules = Rules::read(&args.file, &args.read.settings())?;
    if rules.parsed.has_errors() {
        complain(&Painter::new(&stderr()).errors(&rules.parsed));
        return Ok(COULD_NOT.into());
    }
    if let Some(path) = &args.pcap {
        return capture(path, args, &rules);
    }
    let report = single(args, &rules)?;
    let sources = &rules.parsed.ruleset.sources;
    print(&match args.format {
        TextOrJson::Text => report.text(&Painter::new(&stdout()), sources),
        TextOrJson::Json => output::json(&report)?,
    })?;
    Ok(answer(report.passes()))
}

/// The report on one packet.
fn single(args: &ExplainArgs, rules: &Rules) -> Result<Report> {
    let ruleset = &rules.parsed.ruleset;
    let packet = if let Some(hex) = &args.hex {
        let interface = args.interface.as_deref().unwrap_or_default();
        let interface = rules.host.first_name(interface);
        let direction = args
            .direction
            .map_or(Direction::In, DirectionArgument::direction);
        match Packet::decode(&bytes(hex)?, direction, interface) {
            Ok(packet) => packet,
            Err(refusal) => return Ok(Report::refused(refusal)),
        }
    } else {
        let words = args.packet.join(" ");
        Packet::parse(&words, &rules.host).map_err(|error| wrong_words(&words, &error))?
    };
    let mut engine = Engine::new(ruleset, &rules.host);
    Ok(Report::judge(&mut engine, &packet, &ruleset.sources))
}

/// A picture of the word that does not fit.
fn wrong_words(words: &str, error: &WordError) -> anyhow::Error {
    let at = words
        .get(..error.at)
        .map_or(0, |before| before.chars().count());
    let WordError { message, help, .. } = error;
    anyhow!("{message}\n  {words}\n  {:at$}^ {help}", "")
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let digits: Vec<_> = hex
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ':')
        .collect();
    let value = |c: &char| {
        let digit = c.to_digit(16);
        digit
            .map(|digit| digit as u8)
            .with_context(|| format!("--hex: '{c}' is no hexadecimal digit"))
    };
    let digits = digits.iter().map(value).collect::<Result<Vec<_>>>()?;
    if digits.len() % 2 != 0 {
        bail!(
            "--hex: a byte has two digits, and these are {}",
            digits.len()
        );
    }
    Ok(digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect())
}

/// How many packets got which verdict.
#[derive(Debug, Default)]
struct Tally {
    pass: usize,
    block: usize,
    wait: usize,
    /// Frames without an IP packet.
    other: usize,
    cut: usize,
}

fn capture(path: &Path, args: &ExplainArgs, rules: &Rules) -> Result<ExitCode> {
    let mut engine = Engine::new(&rules.parsed.ruleset, &rules.host);
    let painter = Painter::new(&stdout());
    let (mut tally, mut first) = (Tally::default(), None);
    let mut each = |frame: Frame| {
        tally.cut += usize::from(frame.is_cut);
        let Some(ip) = &frame.ip else {
            tally.other += 1;
            return Ok(());
        };
        let since_first = frame.time.saturating_sub(*first.get_or_insert(frame.time));
        engine.advance(since_first.saturating_sub(engine.clock()));
        let report = judge(&frame, ip, args, &mut engine, rules)?;
        let report = report.of_capture(frame.number, since_first);
        match report.verdict {
            "pass" => tally.pass += 1,
            "wait" => tally.wait += 1,
            _ => tally.block += 1,
        }
        print(&match args.format {
            TextOrJson::Json => serde_json::to_string(&report)? + "\n",
            TextOrJson::Text if args.verbose => {
                report.line() + &report.text(&painter, &rules.parsed.ruleset.sources) + "\n"
            }
            TextOrJson::Text => report.line(),
        })
    };
    capture::read(path, &mut each)?;
    if args.format == TextOrJson::Text {
        print(&tally.text())?;
    }
    Ok(answer(tally.block == 0))
}

fn judge(
    frame: &Frame,
    ip: &[u8],
    args: &ExplainArgs,
    engine: &mut Engine<'_>,
    rules: &Rules,
) -> Result<Report> {
    let number = frame.number;
    let direction = args
        .direction
        .map(DirectionArgument::direction)
        .or(frame.direction);
    let direction = direction.with_context(|| {
        format!(
            "the capture does not tell which way packet {number} went: give --direction in or out"
        )
    })?;
    let interface = args.interface.as_ref().or(frame.interface.as_ref());
    let interface = interface.with_context(|| {
        format!("the capture does not tell the interface of packet {number}: give --interface NAME")
    })?;
    let interface = rules.host.first_name(interface);
    Ok(match Packet::decode(ip, direction, interface) {
        Ok(packet) if args.format == TextOrJson::Text && !args.verbose => {
            Report::verdict(engine, &packet, &rules.parsed.ruleset.sources)
        }
        Ok(packet) => Report::judge(engine, &packet, &rules.parsed.ruleset.sources),
        Err(refusal) => Report::refused(refusal),
    })
}

impl Tally {
    fn text(&self) -> String {
        let Self {
            pass,
            block,
            wait,
            other,
            cut,
        } = *self;
        let mut text = format!(
            "{}: {pass} pass, {block} blocked",
            many(pass + block + wait, "packet")
        );
        if wait > 0 {
            let _ = write!(text, ", {wait} waiting fragments");
        }
        if other > 0 {
            let _ = write!(text, "; {} without IP", many(other, "frame"));
        }
        if cut > 0 {
            let _ = write!(
                text,
                "; the end of {cut} is not in the capture, and taken for zeros"
            );
        }
        text + "\n"
    }
}

impl DirectionArgument {
    fn direction(self) -> Direction {
        match self {
            Self::In => Direction::In,
            Self::Out => Direction::Out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_bytes() {
        assert_eq!(
            bytes("45 00:0aF0\n").expect("four bytes"),
            [0x45, 0, 0x0a, 0xf0]
        );
        assert!(bytes("4x").is_err() && bytes("450").is_err());
    }
}
