//! Files of user code, from /proc/PID/maps.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

/// The frame of user code of an unknown file.
const UNKNOWN: &str = "[user]";

/// Executable mappings of processes, read when a process is first seen.
#[derive(Debug)]
pub struct Mappings {
    processes: HashMap<u64, Vec<Mapping>>,
    /// Whether /proc has the same process numbers.
    numbers_are_ours: bool,
}

#[derive(Debug)]
struct Mapping {
    addresses: Range<u64>,
    name: String,
}

impl Mappings {
    /// Without processes.
    pub fn new() -> Self {
        Self {
            processes: HashMap::new(),
            numbers_are_ours: in_first_pid_namespace(),
        }
    }

    /// The file mapped at an address, in brackets. A library mapped since the process was first seen
    /// is unknown, or named after an earlier one.
    pub fn name(&mut self, process: u64, address: u64) -> &str {
        if !self.numbers_are_ours {
            return UNKNOWN;
        }
        self.processes
            .entry(process)
            .or_insert_with(|| {
                // The process may have exited.
                fs::read_to_string(format!("/proc/{process}/maps"))
                    .map(|text| parse(&text))
                    .unwrap_or_default()
            })
            .iter()
            .find(|mapping| mapping.addresses.contains(&address))
            .map_or(UNKNOWN, |mapping| &mapping.name)
    }
}

/// BPF programs see process numbers of the first PID namespace.
fn in_first_pid_namespace() -> bool {
    /// `PROC_PID_INIT_INO` of the kernel
    const FIRST: &str = "pid:[4026531836]";
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == FIRST)
}

/// The executable mappings of /proc/PID/maps.
fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_line).collect()
}

/// `55d0c0a00000-55d0c0a01000 r-xp 00000000 08:01 123  /usr/bin/some program`
fn parse_line(line: &str) -> Option<Mapping> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    if !permissions.contains('x') {
        return None;
    }
    let path = rest.splitn(4, ' ').nth(3).unwrap_or_default().trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = match path.rsplit('/').next().unwrap_or_default() {
        "" => "[anonymous]".to_owned(),
        name if name.starts_with('[') => name.to_owned(),
        name => format!("[{name}]"),
    };
    Some(Mapping {
        addresses: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_code_have_the_names_of_their_files() {
        let mappings = parse(
            "\
1000-2000 r--p 00000000 08:01 12                         /usr/bin/a program
2000-3000 r-xp 00001000 08:01 12                         /usr/bin/a program
4000-5000 r-xp 00000000 08:01 13                         /lib/libc.so.6 (deleted)
5000-6000 rwxp 00000000 00:00 0 
7000-8000 r-xp 00000000 00:00 0                          [vdso]
nonsense
",
        );
        let names: Vec<_> = mappings.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            names,
            ["[a program]", "[libc.so.6]", "[anonymous]", "[vdso]"]
        );
        assert_eq!(mappings[0].addresses, 0x2000..0x3000);
    }

    #[test]
    fn own_code_is_found_and_a_lost_process_is_not() {
        let mut mappings = Mappings {
            processes: HashMap::new(),
            numbers_are_ours: true,
        };
        let here = own_code_is_found_and_a_lost_process_is_not as fn() as usize as u64;
        let name = mappings.name(std::process::id().into(), here).to_owned();
        assert!(name.starts_with("[weir-"), "{name}");
        assert_eq!(mappings.name(u64::MAX, here), UNKNOWN);
    }
}
