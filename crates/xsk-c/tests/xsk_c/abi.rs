//! The ABI, against the list that is committed: what a program was built with stays as it is.

use crate::compile::{CRATE, program, scratch, shared, succeed};
use crate::{Outcome, Result};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use testkit::{Test, skip};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("the layout in C is the one committed", layout_in_c),
        Test::new("the layout in Rust is the one committed", layout_in_rust),
        Test::new("no field or constant is missing in the list", complete),
        Test::new(
            "the symbols are those committed, and those of the header",
            symbols,
        ),
        Test::new("the header is one of C++ too", header_in_cpp),
    ]
}

fn committed(file: &str) -> Result<String> {
    let path = Path::new(CRATE).join("abi").join(file);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Compares a list with the committed one, and leaves the new one to be looked at.
fn compare(file: &str, now: &str) -> Outcome {
    let before = committed(file).unwrap_or_default();
    if before == now {
        return Ok(());
    }
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    fs::write(&new, now)?;
    Err(format!(
        "the ABI is not the one of abi/{file}: compare it with {}; programs built before may break",
        new.display()
    )
    .into())
}

fn layout_in_c() -> Outcome {
    let scratch = scratch("layout")?;
    let program = program(&scratch, "tests/c/layout.c")?;
    compare("layout.txt", &succeed(&mut Command::new(program))?)
}

/// The size of a field, which names its structure's type.
fn size_of_field<S, F>(_: impl Fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The lines of a structure, as `tests/c/layout.c` prints them.
macro_rules! lines {
    ($text:ident, $name:literal, $type:ty: $($field:ident)*) => {
        writeln!($text, "struct {}: {} bytes", $name, size_of::<$type>())?;
        $(writeln!(
            $text,
            "  {}: {} bytes at {}",
            stringify!($field),
            size_of_field(|it: &$type| &it.$field),
            offset_of!($type, $field)
        )?;)*
    };
}

fn layout_in_rust() -> Outcome {
    let mut text = String::new();
    lines!(text, "weir_xsk_umem_options", weir_xsk::UmemOptions:
        size chunks chunk_size headroom flags reserved numa_node);
    lines!(text, "weir_xsk_rule", weir_xsk::Rule:
        ether_type protocol family source_port destination_port source_bits destination_bits
        reserved source destination);
    lines!(text, "weir_xsk_socket_options", weir_xsk::SocketOptions:
        size mode flags rx_ring tx_ring fill_ring completion_ring fill_chunks waiting
        max_delay_us program_of rules rule_count reserved program_fd map_fd);
    lines!(text, "weir_xsk_accounting", weir_xsk::Accounting:
        size free held receiving sending retired frames);
    lines!(text, "weir_xsk_statistics", weir_xsk::Statistics:
        size reserved received sent completed invalid_descs invalid_indices wakeups send_drops
        sleeps rx_dropped rx_ring_full fill_ring_empty tx_invalid_descs tx_ring_empty fragmented
        lost_timestamps);
    lines!(text, "weir_xsk_frame", weir_xsk::Frame: data len room handle);
    lines!(text, "weir_xsk_rx_hints", weir_xsk::RxHints:
        flags hash hash_kind vlan_protocol vlan_tci timestamp reserved);
    lines!(text, "weir_xsk_tx_request", weir_xsk::TxRequest:
        size flags checksum_start checksum_offset reserved tag launch_time);
    lines!(text, "weir_xsk_tx_timestamp", weir_xsk::TxTimestamp: tag nanoseconds);
    let committed = committed("layout.txt")?;
    assert!(committed.starts_with(&text), "in Rust it is:\n{text}");
    Ok(())
}

/// The fields fill their structures, and the list has every constant of the header.
fn complete() -> Outcome {
    let list = committed("layout.txt")?;
    let mut left = 0;
    for line in list.lines() {
        let words: Vec<&str> = line.split([':', ' ']).filter(|it| !it.is_empty()).collect();
        match words[..] {
            ["struct", _, size, "bytes"] => {
                assert_eq!(left, 0, "bytes without a field before {line}");
                left = size.parse()?;
            }
            [_, size, "bytes", "at", _] => left -= size.parse::<i64>()?,
            [_, "=", _] => assert_eq!(left, 0, "bytes without a field before {line}"),
            _ => return Err(format!("a line of another form: {line}").into()),
        }
    }
    let header = header()?;
    // The guard and the checks of the layout are no interface.
    let constants = names(&header, "WEIR_XSK_").into_iter();
    let no_interface = ["WEIR_XSK_H", "WEIR_XSK_LAYOUT", "WEIR_XSK_CHECKED"];
    let constants = constants.filter(|it| !no_interface.contains(&it.as_str()));
    for constant in constants {
        let listed = list.contains(&format!("\n{constant} = "));
        assert!(listed, "{constant} is not in tests/c/layout.c");
    }
    Ok(())
}

fn header() -> Result<String> {
    Ok(fs::read_to_string(
        Path::new(CRATE).join("include/weir/xsk.h"),
    )?)
}

/// The names with a prefix.
fn names(text: &str, prefix: &str) -> BTreeSet<String> {
    text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_')
        .filter(|word| word.starts_with(prefix) && word.len() > prefix.len())
        .map(str::to_owned)
        .collect()
}

/// The functions that the header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let calls = header.split('(').filter_map(|before| {
        let name = before.rsplit(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        name.into_iter().next()
    });
    calls
        .filter(|name| name.starts_with("weir_xsk_"))
        .map(str::to_owned)
        .collect()
}

fn symbols() -> Outcome {
    let scratch = scratch("symbols")?;
    let library = shared(&scratch)?;
    let mut command = Command::new("nm");
    command
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(&library);
    let output = succeed(&mut command)?;
    let mut exported: Vec<&str> = output
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    exported.sort_unstable();
    compare("symbols.txt", &(exported.join("\n") + "\n"))?;
    let functions = exported.iter().filter_map(|it| it.split_once('@'));
    let functions: BTreeSet<String> = functions.map(|(name, _)| name.to_owned()).collect();
    let mut callbacks = declared(&header()?);
    for callback in ["weir_xsk_each", "weir_xsk_write"] {
        assert!(callbacks.remove(callback), "{callback}");
    }
    assert_eq!(callbacks, functions, "the header, and the library");
    Ok(())
}

fn header_in_cpp() -> Outcome {
    let compilers = ["c++", "g++", "clang++"].into_iter();
    let mut there = compilers.filter(|it| Command::new(it).arg("--version").output().is_ok());
    let Some(compiler) = there.next() else {
        let needs = "needs a C++ compiler: c++, g++ or clang++ (Debian: g++)";
        return Err(skip(needs));
    };
    let mut command = Command::new(compiler);
    command
        .args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(["-fsyntax-only", "-x", "c++"])
        .arg(Path::new(CRATE).join("include/weir/xsk.h"));
    succeed(&mut command)?;
    Ok(())
}
