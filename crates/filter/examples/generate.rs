//! Prints a configuration as large firewalls have them: `generate RULES SEED [CHANGES]`.
//!
//! Rules have networks and ports of their own, quick and not, on four interfaces, a tenth of them
//! in three anchors. With CHANGES, so many lines are dropped, moved, added or changed.
#![allow(dead_code)] // The tests use it as a module.

/// A generator of numbers (splitmix64).
pub struct Random(u64);

impl Random {
    /// Starts with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % most
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

fn network(random: &mut Random, base: u64) -> String {
    let bits = [24, 24, 25, 26, 28, 30, 32, 32, 32][random.below(9) as usize];
    let address = (base << 24 | random.below(1 << 24)) & !((1 << (32 - bits)) - 1);
    format!(
        "{}.{}.{}.{}/{bits}",
        address >> 24 & 255,
        address >> 16 & 255,
        address >> 8 & 255,
        address & 255
    )
}

fn rule(random: &mut Random) -> String {
    const PORTS: [&str; 12] = [
        "22", "25", "53", "80", "123", "143", "389", "443", "993", "3306", "5432", "8080",
    ];
    let interface = random.pick(&["em0", "em1", "em2", "vlan10"]);
    let port = if random.below(5) == 0 {
        (1024 + random.below(60_000)).to_string()
    } else {
        random.pick(&PORTS).to_owned()
    };
    let protocol = random.pick(&["tcp", "tcp", "tcp", "udp"]);
    let client = network(random, 10);
    let server = network(random, 172);
    match random.below(20) {
        0..=8 => format!("pass in on {interface} proto {protocol} to {server} port {port}"),
        9..=13 => {
            format!("pass in on {interface} proto {protocol} from {client} to {server} port {port}")
        }
        14..=15 => format!(
            "pass in quick on {interface} proto {protocol} from {client} to {server} port {port}"
        ),
        16 => format!("block in quick from {client}"),
        17 => format!("block return in on {interface} proto {protocol} to {server} port {port}"),
        18 => format!("pass out on {interface} proto {protocol} from {client} to any port {port}"),
        _ => format!("block in log on {interface} from {client} to {server}"),
    }
}

/// Lines of a configuration of so many rules.
pub fn lines(rules: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let mut lines: Vec<String> = ["set skip on lo", "block return all", "pass out"]
        .map(str::to_owned)
        .into();
    let inside = rules / 30;
    for at in 2..rules {
        if at % (rules / 3 + 1) == rules / 6 {
            lines.push(format!(
                "anchor \"part{}\" in on {} {{",
                lines.len(),
                random.pick(&["em0", "em1", "em2"])
            ));
            lines.extend((0..inside).map(|_| rule(&mut random).replace("pass out", "pass in")));
            lines.push("}".into());
        }
        if at + 3 * inside < rules {
            lines.push(rule(&mut random));
        }
    }
    lines
}

/// The lines with so many of them dropped, moved, added or changed.
pub fn changed(mut lines: Vec<String>, changes: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    for _ in 0..changes {
        let at = 3 + random.below(lines.len() as u64 - 3) as usize;
        if lines[at].starts_with("anchor") || lines[at] == "}" {
            continue;
        }
        match random.below(4) {
            0 => drop(lines.remove(at)),
            1 => {
                let line = lines.remove(at);
                lines.insert(3 + random.below(lines.len() as u64 - 3) as usize, line);
            }
            2 => lines.insert(at, rule(&mut random)),
            _ => lines[at] = rule(&mut random),
        }
    }
    lines
}

fn main() {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let &[rules, seed, ref rest @ ..] = &arguments[..] else {
        eprintln!("usage: generate RULES SEED [CHANGES]");
        return;
    };
    let lines = lines(rules.max(60) as usize, seed);
    let changes = rest.first().copied().unwrap_or(0) as usize;
    println!("{}", changed(lines, changes, seed ^ 1).join("\n"));
}
