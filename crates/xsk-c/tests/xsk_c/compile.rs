//! Builds the library, and programs in C with it.

use crate::Result;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use testkit::{Temporary, skip};

/// The crate's directory.
pub const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// The libraries of the system that a program needs beside the static one; `rustc --print
/// native-static-libs` lists them.
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// Warnings are errors, and so is whatever a sanitizer finds.
const FLAGS: [&str; 7] = [
    "-std=c11",
    "-D_DEFAULT_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
    "-g",
];
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Longest time of a program's build.
pub const BUILD: Duration = Duration::from_secs(600);

/// A directory for the files of a test: programs run there, which a directory of temporary files may forbid.
pub fn scratch(name: &str) -> Result<Temporary> {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Ok(Temporary::below(parent, name)?)
}

/// The static library, built as this program is: with checks for debugging or without.
pub fn library() -> Result<PathBuf> {
    testkit::static_library("weir_xsk")
}

/// The C compiler: `CC`, or the first of the usual ones.
fn compiler() -> Result<OsString> {
    let set = std::env::var_os("CC").into_iter();
    let names = set.chain(["cc", "gcc", "clang"].map(OsString::from));
    for name in names {
        if Command::new(&name).arg("--version").output().is_ok() {
            return Ok(name);
        }
    }
    Err(skip("needs a C compiler: cc, gcc or clang (Debian: gcc)"))
}

/// Whether programs with sanitizers can be linked, which takes libraries of their own.
fn check_sanitizers(compiler: &OsString) -> Result<()> {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let works = WORKS.get_or_init(|| {
        let scratch = scratch("sanitizers");
        scratch.is_ok_and(|scratch| {
            let source = scratch.join("empty.c");
            let written = fs::write(&source, "int main(void) { return 0; }\n");
            let mut command = Command::new(compiler);
            command.args(SANITIZERS).arg(source);
            command.arg("-o").arg(scratch.join("empty"));
            written.is_ok() && succeed(&mut command).is_ok()
        })
    });
    if *works {
        return Ok(());
    }
    let name = compiler.to_string_lossy();
    Err(skip(format!(
        "needs the address sanitizer, which {name} lacks (Debian: gcc)"
    )))
}

/// How a program moves packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// By the functions that the header inlines.
    Inlined,
    /// By those of the library, which check each frame.
    Checked,
}

impl Calls {
    pub const ALL: [Self; 2] = [Self::Inlined, Self::Checked];

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Inlined => &[],
            Self::Checked => &["-DWEIR_XSK_CHECKED"],
        }
    }
}

/// Compiles and links a program of one file, with sanitizers.
pub fn program(scratch: &Temporary, source: &str) -> Result<PathBuf> {
    program_with(scratch, source, Calls::Inlined)
}

/// The same with functions of either kind.
pub fn program_with(scratch: &Temporary, source: &str, calls: Calls) -> Result<PathBuf> {
    let compiler = compiler()?;
    check_sanitizers(&compiler)?;
    let mut command = Command::new(compiler);
    command.args(SANITIZERS).args(calls.flags());
    finish(scratch, command, source, library()?.as_os_str(), &SYSTEM)
}

/// The same as it is released, to be measured.
pub fn measured_program(scratch: &Temporary, source: &str, calls: Calls) -> Result<PathBuf> {
    let mut command = Command::new(compiler()?);
    command
        .arg("-O2")
        .args(calls.flags())
        .arg("-I")
        .arg(Path::new(CRATE).join("tests/c"));
    finish(scratch, command, source, library()?.as_os_str(), &SYSTEM)
}

/// A program for libxdp, to be measured beside it.
pub fn on_libxdp(scratch: &Temporary, source: &str) -> Result<PathBuf> {
    let program = scratch.join("on_libxdp");
    let mut command = Command::new(compiler()?);
    command.arg("-O2").arg(Path::new(CRATE).join(source));
    succeed(command.args(["-lxdp", "-lbpf", "-o"]).arg(&program))?;
    Ok(program)
}

/// The same with the shared library, and without sanitizers.
pub fn shared_program(scratch: &Temporary, source: &str, shared: &Path) -> Result<PathBuf> {
    finish(
        scratch,
        Command::new(compiler()?),
        source,
        shared.as_os_str(),
        &[],
    )
}

fn finish(
    scratch: &Temporary,
    mut command: Command,
    source: &str,
    library: &std::ffi::OsStr,
    system: &[&str],
) -> Result<PathBuf> {
    let source = Path::new(CRATE).join(source);
    let name = source.file_stem().ok_or("a file")?;
    let program = scratch.join(name);
    command
        .args(FLAGS)
        .arg("-I")
        .arg(Path::new(CRATE).join("include"))
        .arg(source)
        .arg(library)
        .args(system)
        .arg("-o")
        .arg(&program);
    succeed(&mut command)?;
    Ok(program)
}

/// A way to link with the installed library.
pub struct Linking {
    /// Words for the compiler.
    compiler: &'static [&'static str],
    /// Words for pkg-config.
    pkg_config: &'static [&'static str],
    /// Whether the program then needs the shared library.
    pub shared: bool,
}

/// The ways that the file of pkg-config is for.
pub const LINKINGS: [Linking; 3] = [
    Linking {
        compiler: &[],
        pkg_config: &["--cflags", "--libs"],
        shared: true,
    },
    Linking {
        compiler: &[],
        pkg_config: &["--cflags", "--libs", "--static"],
        shared: true,
    },
    Linking {
        compiler: &["-static"],
        pkg_config: &["--cflags", "--libs", "--static"],
        shared: false,
    },
];

/// Installs the library below a directory, and compiles a program as the guide says.
pub fn installed_program(scratch: &Temporary, source: &str, linking: &Linking) -> Result<PathBuf> {
    let compiler = compiler()?;
    if Command::new("pkg-config")
        .arg("--version")
        .output()
        .is_err()
    {
        return Err(skip("needs pkg-config (Debian: pkg-config)"));
    }
    let prefix = scratch.join("prefix");
    let script = Path::new(CRATE).join("../../scripts/install-clib.sh");
    succeed(Command::new(script).arg(library()?).arg(&prefix))?;
    let mut flags = Command::new("pkg-config");
    flags
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(linking.pkg_config)
        .arg("weir-xsk");
    let flags = succeed(&mut flags)?;
    // Beside the library, where `lab::start` looks for it.
    let program = prefix.join("lib/program");
    let mut command = Command::new(compiler);
    command
        .args(linking.compiler)
        .arg("-o")
        .arg(&program)
        .arg(Path::new(CRATE).join(source))
        .args(flags.split_whitespace());
    succeed(&mut command)?;
    Ok(program)
}

/// The shared library, linked as it is installed.
pub fn shared(scratch: &Temporary) -> Result<PathBuf> {
    let compiler = compiler()?;
    let output = scratch.join("libweir-xsk.so.0");
    let mut command = Command::new(Path::new(CRATE).join("../../scripts/link-shared.sh"));
    command
        .env("CC", compiler)
        .arg(library()?)
        .arg("libweir-xsk.so.0")
        .arg(Path::new(CRATE).join("weir-xsk.map"))
        .arg(&output);
    succeed(&mut command)?;
    Ok(output)
}

/// Runs a command, and returns its output; a failure is an error with that.
pub fn succeed(command: &mut Command) -> Result<String> {
    Ok(testkit::success(command, BUILD)?)
}
