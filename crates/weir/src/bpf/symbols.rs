//! Kernel symbols, from /proc/kallsyms.

use std::fs;

use anyhow::{Context as _, Result};

/// Functions by address, those of modules and BPF programs included.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// Sorted by address; their names are in `text`.
    functions: Vec<Function>,
    text: String,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    start: usize,
    end: usize,
}

impl KernelSymbols {
    /// The symbols of the running kernel; none if it hides its addresses.
    pub fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/kallsyms")
            .context("cannot read /proc/kallsyms for kernel symbols")?;
        Ok(Self::parse(text))
    }

    /// Lines such as `ffffffff81000080 T entry_SYSCALL_64`, some with a tab and `[module]`. A hidden
    /// address is 0.
    fn parse(text: String) -> Self {
        let mut functions: Vec<Function> = text
            .lines()
            .filter_map(|line| Function::parse(line, &text))
            .collect();
        // The sort is stable: the first of several names of an address stays.
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        Self { functions, text }
    }

    /// Whether the kernel hides its addresses.
    pub fn are_hidden(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self
            .functions
            .partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        self.text.get(function.start..function.end)
    }
}

impl Function {
    /// `line` is a part of `text`.
    fn parse(line: &str, text: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
        let name = words.next()?;
        if address == 0 || !is_code {
            return None;
        }
        let start = name.as_ptr().addr() - text.as_ptr().addr();
        Some(Self {
            address,
            start,
            end: start + name.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t net_rx_action
ffffffff81000080 T entry_SYSCALL_64
ffffffff81000180 d some_data
ffffffffc0000000 t veth_poll\t[veth]
ffffffffc0001000 t bpf_prog_6deef7357e7b4530_load\t[bpf]
";

    #[test]
    fn an_address_is_in_the_function_that_begins_before_it() {
        let symbols = KernelSymbols::parse(TEXT.into());
        assert!(!symbols.are_hidden());
        for (address, name) in [
            (0xffff_ffff_8100_0000, Some("_stext")),
            (0xffff_ffff_8100_0080, Some("entry_SYSCALL_64")),
            (0xffff_ffff_8100_00ff, Some("entry_SYSCALL_64")),
            (0xffff_ffff_8100_0100, Some("net_rx_action")),
            (0xffff_ffff_8100_0190, Some("net_rx_action")),
            (0xffff_ffff_c000_0001, Some("veth_poll")),
            (
                0xffff_ffff_c000_1010,
                Some("bpf_prog_6deef7357e7b4530_load"),
            ),
            (0xffff_ffff_80ff_ffff, None),
            (0, None),
        ] {
            assert_eq!(symbols.name(address), name, "{address:x}");
        }
    }

    #[test]
    fn hidden_addresses_and_nonsense_are_no_symbols() {
        for text in [
            "",
            "0000000000000000 T net_rx_action\n0000000000000000 t veth_poll\t[veth]\n",
            "no\nkallsyms at all\nffffffff81000000\nffffffff81000000 T\n",
        ] {
            let symbols = KernelSymbols::parse(text.into());
            assert!(symbols.are_hidden(), "{text}");
            assert_eq!(symbols.name(u64::MAX), None);
        }
    }
}
