//! The compiler of the BPF programs, for the build scripts of `weir` and of `testbpf`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `DIRECTORY/NAME.bpf.c` to `OBJECT.bpf.o` in the output directory, with the libbpf headers that belong to
/// the libbpf we link.
pub fn compile_bpf(directory: &str, name: &str, object: &str, flags: &[&str]) {
    let source = format!("{directory}/{name}.bpf.c");
    let object = variable("OUT_DIR").join(format!("{object}.bpf.o"));
    println!("cargo::rerun-if-changed={directory}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command
        .args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            // A program takes all arguments of its tracepoint, used or not.
            "-Wno-unused-parameter",
        ])
        .args(flags)
        .arg("-I")
        .arg(variable("DEP_BPF_INCLUDE"));
    command
        .arg("-idirafter")
        .arg(machine_headers())
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            panic!("{clang} could not compile {source} ({status}); see its messages above")
        }
        Err(error) => panic!(
            "cannot run {clang} to compile {source}: {error}; install clang, or name it in CLANG"
        ),
    }
}

/// Where Debian keeps `asm/`: a compiler for that machine looks there, one for BPF does not. Another machine's headers are
/// rarely installed, and the programs take only integer types from them, so those of this machine do as well.
fn machine_headers() -> PathBuf {
    let of = |architecture| Path::new("/usr/include").join(format!("{architecture}-linux-gnu"));
    let target = of(variable("CARGO_CFG_TARGET_ARCH").display().to_string());
    if target.is_dir() {
        target
    } else {
        of(env::consts::ARCH.to_owned())
    }
}

/// A variable that cargo sets.
pub fn variable(name: &str) -> PathBuf {
    env::var_os(name)
        .unwrap_or_else(|| panic!("cargo did not set {name}"))
        .into()
}
