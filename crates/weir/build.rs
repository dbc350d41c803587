//! Builds the BPF programs and the libxdp engine that `weir` embeds.

#[path = "build/clang.rs"]
mod clang;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use clang::{compile_bpf, variable};

fn main() {
    name_version();
    prefer_archives();
    for name in [
        "load", "cost", "drops", "flame", "forward", "ledger", "switch",
    ] {
        compile_bpf("bpf", name, name, &[]);
    }
    build_libxdp_loop();
}

/// Sets `WEIR_VERSION` to e.g. "0.1.0 (b5a301fb12, 2026-11-22)", or to the bare version where this is
/// not built in its repository. It is set anew when HEAD moves.
fn name_version() {
    let mut version = variable("CARGO_PKG_VERSION").display().to_string();
    // A copy of this crate may lie in somebody else's repository.
    if git(&["rev-parse", "--show-prefix"]).as_deref() == Some("crates/weir/")
        && let Some(commit) = git(&["log", "-1", "--abbrev=10", "--format=%h, %cs"])
    {
        version = format!("{version} ({commit})");
        let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
        // A commit on a branch leaves the file HEAD as it is; a packed branch has no file.
        for name in ["HEAD", "logs/HEAD"].into_iter().chain(branch.as_deref()) {
            let path = git(&["rev-parse", "--git-path", name]).unwrap_or_default();
            // Cargo takes a file that is not there for one that has changed.
            if Path::new(&path).is_file() {
                println!("cargo::rerun-if-changed={path}");
            }
        }
    }
    println!("cargo::rustc-env=WEIR_VERSION={version}");
}

/// The first line that git prints; none if it fails, or if there is no git.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// Has the linker find archives of libbpf's libraries and of libgcc before the shared libraries,
/// so that weir starts on a system that has libc and nothing else. Where an archive is missing,
/// as libelf.a is in many distributions, the library stays a shared one.
fn prefer_archives() {
    let directory = archives_directory();
    // None may be left from a build with another compiler.
    drop(fs::remove_dir_all(&directory));
    fs::create_dir_all(&directory).expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", directory.display());
    if !for_this_machine() {
        return;
    }
    // libelf.a may need zstd since elfutils 0.189.
    let elf = pkg_config(&["--static", "--libs-only-l", "libelf"]).unwrap_or_default();
    let elf = elf
        .split_whitespace()
        .filter_map(|it| it.strip_prefix("-l"));
    if let Some(elf) = archives(elf).filter(|elf| links(elf)) {
        prefer("elf", &elf);
        prefer("z", &archives(["z"]).unwrap_or_default());
    }
    if let Some(gcc) = archives(["gcc_eh", "gcc"]) {
        prefer("gcc_s", &gcc);
    }
}

fn archives_directory() -> PathBuf {
    variable("OUT_DIR").join("archives")
}

/// Puts archives in the place of a library. Linkers take a text for an archive: glibc's libc.so is
/// one, too.
fn prefer(library: &str, archives: &[String]) {
    let script = archives_directory().join(format!("lib{library}.a"));
    let text = format!("GROUP ( {} )\n", archives.join(" "));
    fs::write(script, text).expect("OUT_DIR is writable");
}

/// The archives of libraries, if each has one.
fn archives<'a>(libraries: impl IntoIterator<Item = &'a str>) -> Option<Vec<String>> {
    libraries.into_iter().map(archive).collect()
}

/// Whether libbpf links with these archives: libelf.a of elfutils 0.192 lacks functions.
fn links(archives: &[String]) -> bool {
    let source = archives_directory().join("links.c");
    let program =
        "char bpf_object__open_file(); int main(void) { return bpf_object__open_file(); }";
    fs::write(&source, program).expect("OUT_DIR is writable");
    let libbpf = variable("DEP_BPF_INCLUDE").join("../libbpf.a");
    let result = Command::new(c_compiler())
        .arg(&source)
        .arg(libbpf)
        .args(archives)
        .arg("-o")
        .arg(source.with_extension("out"))
        .output();
    result.is_ok_and(|output| output.status.success())
}

/// Where the C compiler finds an archive.
fn archive(library: &str) -> Option<String> {
    let file = format!("-print-file-name=lib{library}.a");
    let output = Command::new(c_compiler()).arg(file).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    // Without one it prints the name alone.
    Path::new(&path).is_absolute().then_some(path)
}

/// The archive of libxdp or libbpf for its flag, if it has one; else the flag as it is. The others
/// are found in the directory of archives.
fn archive_or_flag(flag: &str) -> String {
    let library = flag
        .strip_prefix("-l")
        .filter(|it| ["xdp", "bpf"].contains(it));
    library.and_then(archive).unwrap_or_else(|| flag.to_owned())
}

fn pkg_config(args: &[&str]) -> Option<String> {
    let output = Command::new("pkg-config").args(args).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn c_compiler() -> String {
    println!("cargo::rerun-if-env-changed=CC");
    env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// Whether this builds for the machine that it runs on: cc and pkg-config know no other.
fn for_this_machine() -> bool {
    variable("TARGET") == variable("HOST")
}

/// Compiles the loop of the libxdp engine, for `include_bytes!`, where libxdp is installed. It is optional: without it
/// the bench says that the engine is not available.
fn build_libxdp_loop() {
    println!("cargo::rerun-if-changed=libxdp");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rustc-check-cfg=cfg(libxdp)");
    if !for_this_machine() {
        return;
    }
    let query = [
        "--static",
        "--cflags",
        "--libs",
        "libxdp >= 1.2",
        "libbpf >= 1.0",
    ];
    let Some(flags) = pkg_config(&query) else {
        return;
    };
    let mut flags: Vec<String> = flags.split_whitespace().map(archive_or_flag).collect();
    flags.push(format!("-L{}", archives_directory().display()));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = variable("OUT_DIR").join("libxdp-loop");
    if compile("libxdp/loop.c", &program, &flags) {
        println!("cargo::rustc-cfg=libxdp");
        println!("cargo::rustc-env=WEIR_LIBXDP_LOOP={}", program.display());
    }
}

/// Compiles C for this machine, and tells whether that worked.
fn compile(source: &str, output: &Path, flags: &[&str]) -> bool {
    let compiler = c_compiler();
    let result = Command::new(&compiler)
        .args(["-O3", "-Wall", "-Wextra", source, "-o"]) // -O3: as the other engines are built
        .arg(output)
        .args(flags)
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
