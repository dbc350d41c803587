//! Options of tmpfs (`Documentation/filesystems/tmpfs.rst`).

use rustix::io::Errno;
use std::ffi::CStr;

/// Most bytes and most inodes of a tmpfs; greater requests get as much. Both are charged to the
/// caller's control group when they are used.
const MOST_SIZE: u64 = 1 << 30;
const MOST_INODES: u64 = 1 << 18;

/// The known options, with defaults for those not given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) size: u64,
    pub(super) inodes: u64,
    pub(super) mode: u32,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) read_only: bool,
}

impl Options {
    /// Of a string such as `size=64m,mode=700`; `EINVAL` for an unknown one, as the kernel has it.
    pub(super) fn parse(options: &CStr, memory: u64) -> Result<Self, Errno> {
        let mut parsed = Self {
            size: (memory / 2).min(MOST_SIZE),
            inodes: MOST_INODES,
            mode: 0o1777,
            uid: None,
            gid: None,
            read_only: false,
        };
        let options = options.to_str().map_err(|_| Errno::INVAL)?;
        for option in options.split(',').filter(|it| !it.is_empty()) {
            parsed.take(option, memory).ok_or(Errno::INVAL)?;
        }
        Ok(parsed)
    }

    fn take(&mut self, option: &str, memory: u64) -> Option<()> {
        match option.split_once('=') {
            None if option == "ro" => self.read_only = true,
            None if matches!(option, "rw" | "inode32" | "inode64") => {}
            Some(("size", value)) => self.size = at_most(size(value, memory)?, MOST_SIZE),
            Some(("nr_inodes", value)) => self.inodes = at_most(number(value)?, MOST_INODES),
            Some(("mode", value)) => {
                self.mode = u32::from_str_radix(value, 8).ok()? & 0o7777;
            }
            Some(("uid", value)) => self.uid = Some(value.parse().ok()?),
            Some(("gid", value)) => self.gid = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

/// 0 means no limit to tmpfs.
fn at_most(value: u64, most: u64) -> u64 {
    if value == 0 { most } else { value.min(most) }
}

fn size(value: &str, memory: u64) -> Option<u64> {
    if let Some(percent) = value.strip_suffix('%') {
        let percent: u64 = percent.parse().ok()?;
        return Some(memory.saturating_mul(percent) / 100);
    }
    number(value)
}

/// A number with a suffix for powers of 1024.
fn number(value: &str) -> Option<u64> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match value.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    Some(number.saturating_mul(1 << shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 1 << 28;

    fn parse(options: &CStr) -> Result<Options, Errno> {
        Options::parse(options, MEMORY)
    }

    #[test]
    fn without_options_it_is_half_of_the_memory() {
        let options = parse(c"").unwrap();
        assert_eq!((options.size, options.mode), (MEMORY / 2, 0o1777));
        let options = Options::parse(c"", 1 << 40).unwrap();
        assert_eq!((options.size, options.inodes), (MOST_SIZE, MOST_INODES));
    }

    #[test]
    fn options_are_bounded() {
        let all = parse(c"size=64m,nr_inodes=2k,mode=0700,uid=5,gid=6,ro,inode64").unwrap();
        let expected = Options {
            size: 64 << 20,
            inodes: 2048,
            mode: 0o700,
            uid: Some(5),
            gid: Some(6),
            read_only: true,
        };
        assert_eq!(all, expected);
        for much in [c"size=0", c"size=99t", c"size=18446744073709551615k"] {
            assert_eq!(parse(much).unwrap().size, MOST_SIZE);
        }
        for much in [c"nr_inodes=0", c"nr_inodes=1g"] {
            assert_eq!(parse(much).unwrap().inodes, MOST_INODES);
        }
        assert_eq!(parse(c"size=25%").unwrap().size, MEMORY / 4);
        assert_eq!(parse(c"mode=7777777").unwrap().mode, 0o7777);
    }

    #[test]
    fn unknown_options_are_refused() {
        for options in [
            c"huge=always",
            c"mpol=bind:0",
            c"size",
            c"size=",
            c"size=-1",
            c"size=1mm",
            c"size=1\xc3\xa4",
            c"uid=4294967296",
            c"mode=8",
            c"nr_blocks=1",
            c"\xff",
            c"noswap",
            c"usrquota",
        ] {
            assert_eq!(parse(options), Err(Errno::INVAL), "{options:?}");
        }
    }
}
