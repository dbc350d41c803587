//! Builds the BPF programs and the libxdp engine that `weir` embeds.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    compile_bpf("load");
    compile_bpf("cost");
    compile_bpf("burn");
    compile_bpf("flame");
    compile_bpf("forward");
    build_libxdp_baselines();
}

/// Compiles `bpf/NAME.bpf.c` to `NAME.bpf.o` in the output directory, with clang and the
/// libbpf headers that belong to the libbpf we link.
fn compile_bpf(name: &str) {
    let source = format!("bpf/{name}.bpf.c");
    let object = variable("OUT_DIR").join(format!("{name}.bpf.o"));
    println!("cargo::rerun-if-changed=bpf");
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
fn variable(name: &str) -> PathBuf {
    env::var_os(name)
        .unwrap_or_else(|| panic!("cargo did not set {name}"))
        .into()
}

/// Compiles the libxdp baselines where libxdp is installed: the loop, for `include_bytes!`,
/// and the moves, for the micro-benchmark to link. They are optional: without them the bench
/// says that the engine is not available.
fn build_libxdp_baselines() {
    println!("cargo::rerun-if-changed=libxdp");
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rustc-check-cfg=cfg(libxdp)");
    let target = variable("CARGO_CFG_TARGET_ARCH");
    let host = variable("HOST").display().to_string();
    if !host.starts_with(&target.display().to_string()) {
        return; // cc and pkg-config know this machine only
    }
    let query = ["--cflags", "--libs", "libxdp >= 1.2", "libbpf >= 1.0"];
    let flags = match Command::new("pkg-config").args(query).output() {
        Ok(output) if output.status.success() => output.stdout,
        _ => return,
    };
    let flags = String::from_utf8_lossy(&flags).into_owned();
    let program = variable("OUT_DIR").join("libxdp-loop");
    let moves = variable("OUT_DIR").join("libxdp-moves.o");
    if compile("libxdp/loop.c", &program, &flags) && compile("libxdp/moves.c", &moves, "-c") {
        println!("cargo::rustc-cfg=libxdp");
        println!("cargo::rustc-env=WEIR_LIBXDP_LOOP={}", program.display());
        println!("cargo::rustc-link-arg-benches={}", moves.display());
    }
}

/// Compiles C for this machine, and tells whether that worked.
fn compile(source: &str, output: &Path, flags: &str) -> bool {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let result = Command::new(&compiler)
        .args(["-O3", "-Wall", "-Wextra", source, "-o"]) // -O3: as the other engines are built
        .arg(output)
        .args(flags.split_whitespace())
        .output();
    match result {
        Ok(output) if output.status.success() => return true,
        Ok(output) => {
            println!("cargo::warning=no libxdp engine: {compiler} failed on {source}");
            for line in String::from_utf8_lossy(&output.stderr).lines() {
                println!("cargo::warning={line}");
            }
        }
        Err(error) => {
            println!("cargo::warning=no libxdp engine: cannot run {compiler}: {error}");
        }
    }
    false
}
