//! `weir filter` as a user runs it: time and memory of whole processes on generated rule sets, and `nft -c` on rules
//! that match the same packets, in turns. A word chooses the rows that have it in their names. `nft` needs root,
//! for a network namespace of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use weir::report::statistics::median;

const ROUNDS: usize = 5;
/// How often a process's memory is looked at.
const LOOK: Duration = Duration::from_millis(1);
const PACKETS: usize = 100_000;

fn main() -> Result<()> {
    // `cargo test --all-targets` runs it without this word, to see whether it builds.
    if !env::args().any(|word| word == "--bench") {
        return Ok(());
    }
    let part = env::args()
        .skip(1)
        .find(|word| !word.starts_with('-'))
        .unwrap_or_default();
    let folder = env::temp_dir().join(format!("weir-bench-filter-{}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let result = rows(&folder).and_then(|rows| measure(&rows, &part));
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    result
}

/// A command, and how often it is worth running.
struct Row {
    name: String,
    command: Vec<String>,
    rounds: usize,
    /// Exit statuses that mean success.
    good: &'static [i32],
}

fn rows(folder: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let weir = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        [env!("CARGO_BIN_EXE_weir").to_owned(), "filter".to_owned()]
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>()
    };
    for count in [1000, 10_000, 100_000] {
        let (before, after, nft) = files(folder, count)?;
        let name = |path: &PathBuf| path.display().to_string();
        rows.push(Row {
            name: format!("check {count}"),
            command: weir(&["check", &name(&before)]),
            rounds: ROUNDS,
            good: &[0],
        });
        rows.push(Row {
            name: format!("nft -c {count}"),
            command: ["unshare", "--net", "nft", "-c", "-f", &name(&nft)]
                .map(str::to_owned)
                .to_vec(),
            rounds: if count > 10_000 { 1 } else { ROUNDS },
            good: &[0],
        });
        if count > 10_000 {
            continue;
        }
        for (what, after) in after {
            rows.push(Row {
                name: format!("diff {count}, {what}"),
                command: weir(&["diff", &name(&before), &name(&after)]),
                rounds: ROUNDS,
                good: &[0, 1],
            });
        }
        rows.push(Row {
            name: format!("cover {count}"),
            command: weir(&["cover", &name(&before)]),
            rounds: ROUNDS,
            good: &[0, 1],
        });
        let pcap = folder.join("packets.pcap");
        fs::write(&pcap, packets())?;
        for (how, options) in [("verdicts", &[][..]), ("reasons", &["--verbose"])] {
            let packets = [
                "--pcap",
                &name(&pcap),
                "--interface",
                "em0",
                "--direction",
                "in",
            ];
            let mut command = weir(&["explain", &name(&before)]);
            command.extend(packets.iter().chain(options).map(|&word| word.to_owned()));
            rows.push(Row {
                name: format!("explain {PACKETS} packets, {count} rules, {how}"),
                command,
                rounds: if count > 1000 { 1 } else { ROUNDS },
                good: &[0, 1],
            });
        }
    }
    Ok(rows)
}

fn measure(rows: &[Row], part: &str) -> Result<()> {
    let rows: Vec<_> = rows.iter().filter(|row| row.name.contains(part)).collect();
    println!("Whole processes, medians of up to {ROUNDS} rounds in turns:");
    println!(
        "{:40} {:>9} {:>9} {:>9} {:>9}",
        "", "seconds", "min", "max", "MiB"
    );
    let mut results = vec![Vec::new(); rows.len()];
    for round in 0..ROUNDS {
        for (row, results) in rows.iter().zip(&mut results) {
            if round < row.rounds
                && let Some(result) = run(row)?
            {
                results.push(result);
            }
        }
    }
    for (row, results) in rows.iter().zip(results) {
        if results.is_empty() {
            println!(
                "{:40} skipped: {} does not run here",
                row.name, row.command[2]
            );
            continue;
        }
        let mut seconds: Vec<f64> = results.iter().map(|(seconds, _)| *seconds).collect();
        let memory: Vec<f64> = results.iter().map(|(_, memory)| *memory).collect();
        seconds.sort_by(f64::total_cmp);
        println!(
            "{:40} {:9.3} {:9.3} {:9.3} {:9.0}",
            row.name,
            median(seconds.iter().copied()).unwrap_or(0.0),
            seconds[0],
            seconds[seconds.len() - 1],
            median(memory.into_iter()).unwrap_or(0.0)
        );
    }
    Ok(())
}

/// Seconds, and most MiB of resident memory. `None` if the program cannot be run.
fn run(row: &Row) -> Result<Option<(f64, f64)>> {
    let start = Instant::now();
    let mut command = Command::new(&row.command[0]);
    command
        .args(&row.command[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", row.command[0]))?;
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0.0f64;
    let exit = loop {
        if let Some(exit) = child.try_wait()? {
            break exit;
        }
        most = most.max(peak(&status));
        sleep(LOOK);
    };
    let seconds = start.elapsed().as_secs_f64();
    if row.command[0] == "unshare" && !exit.success() {
        return Ok(None);
    }
    let good = exit.code().is_some_and(|code| row.good.contains(&code));
    ensure!(good, "{:?} ended with {exit}", row.command);
    Ok(Some((seconds, most)))
}

/// The most resident memory so far, in MiB.
fn peak(status: &str) -> f64 {
    let text = fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

type Files = (PathBuf, Vec<(&'static str, PathBuf)>, PathBuf);

/// A rule set of so many rules, the same with three edits and with one in a hundred, and the same for nft.
fn files(folder: &Path, count: usize) -> Result<Files> {
    let mut random = Random(count as u64);
    let rules: Vec<Rule> = (0..count).map(|_| Rule::draw(&mut random)).collect();
    let write = |name: &str, text: String| -> Result<PathBuf> {
        let path = folder.join(format!("{name}-{count}"));
        fs::write(&path, text)?;
        Ok(path)
    };
    let pf = |rules: &[Rule]| {
        let mut text = String::from("set skip on lo0\nblock all\npass in proto tcp to port ssh\n");
        for rule in rules {
            text += &rule.pf();
        }
        text
    };
    let mut nft = String::from(
        "table inet filter {\n chain input {\n  type filter hook input priority 0; policy drop;\n",
    );
    // pf's last match wins, but for quick rules; nft's first.
    let (quick, rest): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.quick);
    for rule in quick.into_iter().chain(rest.into_iter().rev()) {
        nft += &rule.nft();
    }
    nft += " }\n}\n";
    let edited = |every: usize| {
        let mut rules = rules.clone();
        let mut random = Random(every as u64);
        for rule in rules.iter_mut().step_by(every) {
            *rule = Rule::draw(&mut random);
        }
        rules
    };
    let after = vec![
        ("3 edits", write("three", pf(&edited(count / 2 - 1)))?),
        ("1 in 100 edited", write("hundredth", pf(&edited(100)))?),
    ];
    Ok((write("before", pf(&rules))?, after, write("nft", nft)?))
}

/// A rule that pf and nft both have.
#[derive(Clone)]
struct Rule {
    pass: bool,
    quick: bool,
    interface: &'static str,
    protocol: &'static str,
    source: String,
    destination: String,
    ports: (u16, u16),
}

impl Rule {
    fn draw(random: &mut Random) -> Self {
        let interfaces = ["em0", "em1", "em2", "em3"];
        let first = 1 + random.below(65_000) as u16;
        let bits = [32, 32, 32, 24, 24, 16][random.below(6) as usize];
        Self {
            pass: random.below(3) > 0,
            quick: random.below(4) == 0,
            interface: interfaces[random.below(4) as usize],
            protocol: if random.below(3) > 0 { "tcp" } else { "udp" },
            source: random.network(10, bits),
            destination: random.network(172, 32),
            ports: (first, first + [0, 0, 0, 9, 99][random.below(5) as usize]),
        }
    }

    fn pf(&self) -> String {
        let Self {
            interface,
            protocol,
            source,
            destination,
            ports: (first, last),
            ..
        } = self;
        let action = if self.pass { "pass" } else { "block" };
        let quick = if self.quick { " quick" } else { "" };
        format!(
            "{action} in{quick} on {interface} inet proto {protocol} from {source} to {destination} port {first}:{last}\n"
        )
    }

    fn nft(&self) -> String {
        let Self {
            interface,
            protocol,
            source,
            destination,
            ports: (first, last),
            ..
        } = self;
        let ports = if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        };
        let verdict = if self.pass { "accept" } else { "drop" };
        format!(
            "  iifname {interface} ip saddr {source} ip daddr {destination} {protocol} dport {ports} {verdict}\n"
        )
    }
}

/// TCP SYNs and UDP packets of the networks of the rules, as a pcap file of raw IP packets.
fn packets() -> Vec<u8> {
    let mut random = Random(7);
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for number in 0..PACKETS as u32 {
        let tcp = random.below(3) > 0;
        let length: u32 = if tcp { 40 } else { 28 };
        for word in [number / 1000, number % 1000 * 1000, length, length] {
            file.extend(word.to_le_bytes());
        }
        let mut packet = vec![
            0x45,
            0,
            0,
            length as u8,
            0,
            0,
            0,
            0,
            64,
            if tcp { 6 } else { 17 },
            0,
            0,
        ];
        packet.extend([
            10,
            random.below(256) as u8,
            random.below(256) as u8,
            random.below(256) as u8,
        ]);
        packet.extend([
            172,
            random.below(256) as u8,
            random.below(256) as u8,
            random.below(256) as u8,
        ]);
        packet.extend((1024 + random.below(60_000) as u16).to_be_bytes());
        packet.extend((1 + random.below(65_000) as u16).to_be_bytes());
        if tcp {
            packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
        } else {
            packet.extend([0, 8, 0, 0]);
        }
        file.extend(packet);
    }
    file
}

/// The generator `SplitMix64`: the same rules in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit
    }

    fn network(&mut self, first: u8, bits: u8) -> String {
        let octets = [
            u64::from(first),
            self.below(256),
            self.below(256),
            self.below(256),
        ];
        let address = octets
            .iter()
            .fold(0u32, |address, octet| address << 8 | *octet as u32);
        let address = std::net::Ipv4Addr::from(address & (u32::MAX << (32 - bits)));
        format!("{address}/{bits}")
    }
}
