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
    // Debian keeps asm/ where only a compiler for this machine, not one for BPF, looks.
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let multiarch = Path::new("/usr/include").join(format!("{}-linux-gnu", architecture.display()));
    command
        .arg("-idirafter")
        .arg(multiarch)
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

/// A variable that cargo sets.
pub fn variable(name: &str) -> PathBuf {
    env::var_os(name)
        .unwrap_or_else(|| panic!("cargo did not set {name}"))
        .into()
}
