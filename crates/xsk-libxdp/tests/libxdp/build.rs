//! weir's shared libraries, and the programs that use them.

use crate::Result;
use crate::lab::run;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Skip, Temporary, Test, skip, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        the_library_has_libxdps_versions,
        the_headers_functions_are_exported_for_other_languages,
    ]
}

/// The library that serves a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Debian's, to compare.
    Debian,
    /// weir's, found in place of Debian's.
    Linked,
    /// weir's, in front of Debian's, which is loaded too.
    Preloaded,
}

impl Way {
    pub(crate) const WEIRS: [Self; 2] = [Self::Linked, Self::Preloaded];
    pub(crate) const ALL: [Self; 3] = [Self::Debian, Self::Linked, Self::Preloaded];

    /// The name of the program that it attaches for its sockets.
    pub(crate) fn program(self) -> &'static str {
        if self == Self::Debian {
            "xsk_def_prog"
        } else {
            "xsk_redirect"
        }
    }
}

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/libxdp");
const BROKERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../broker/tests/libxdp");

/// The libraries, linked as `./run libxdp` does, and programs, in a directory of this value's.
pub(crate) struct Built {
    pub(crate) directory: Temporary,
}

impl Built {
    /// The libraries.
    pub(crate) fn libraries() -> Result<Self> {
        let built = Self {
            directory: Temporary::new("libxdp")?,
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for soname in ["libxdp.so.1", "libweir-xdp.so"] {
            let mut link = Command::new(root.join("../../scripts/link-shared.sh"));
            link.args([
                testkit::static_library("xsk_libxdp")?,
                soname.into(),
                root.join("libxdp.map"),
            ])
            .arg(built.path(soname));
            run(&mut link).map_err(|error| format!("linking {soname}: {error}"))?;
        }
        Ok(built)
    }

    /// The libraries, and a program, built against Debian's libxdp.
    pub(crate) fn with(source: &str) -> Result<Self> {
        let built = Self::libraries()?;
        built.add(source)?;
        Ok(built)
    }

    /// Another program.
    pub(crate) fn add(&self, source: &str) -> Result {
        self.compile(source, &["-O2"])
    }

    /// A program that calls the functions which the header inlines, as those of other languages do.
    pub(crate) fn add_calling(&self, source: &str, optimization: &str) -> Result {
        self.compile(source, &[optimization, "-D__always_inline__=__noinline__"])
    }

    fn compile(&self, source: &str, options: &[&str]) -> Result {
        let mut flags = Command::new("pkg-config");
        flags.args(["--cflags", "--libs", "libxdp"]);
        let flags = run(&mut flags).map_err(|_| Skip::new("needs pkg-config and libxdp-dev"))?;
        let own = Path::new(SOURCES).join(source).with_extension("c");
        let brokers = Path::new(BROKERS).join(source).with_extension("c");
        let file = if own.exists() { own } else { brokers };
        let mut compiler = Command::new("cc");
        compiler
            .args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"])
            .args(options)
            .arg(file)
            .arg("-o")
            .arg(self.path(source))
            .args(flags.split_whitespace());
        run(&mut compiler).map(drop)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A program with one of the libraries.
    pub(crate) fn command(&self, way: Way, program: &str) -> Command {
        self.command_by(way, &[], program)
    }

    /// The same, run by another program. Debian's has a /run of its own, where it leaves a lock.
    pub(crate) fn command_by(&self, way: Way, runner: &[&str], program: &str) -> Command {
        let script = "mount -t tmpfs none /run && exec \"$0\" \"$@\"";
        let own_run = ["unshare", "--mount", "sh", "-c", script];
        let before = if way == Way::Debian {
            &own_run[..]
        } else {
            &[]
        };
        let mut words = [before, runner].concat().into_iter().map(OsString::from);
        let first = words.next();
        let path = self.path(program).into_os_string();
        let mut command = match first {
            None => Command::new(path),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(path);
                command
            }
        };
        match way {
            // No dispatcher: it would be pinned, and needs BPF trampolines.
            Way::Debian => command.env("LIBXDP_SKIP_DISPATCHER", "1"),
            Way::Linked => command.env("LD_LIBRARY_PATH", self.directory.path()),
            Way::Preloaded => command.env("LD_PRELOAD", self.path("libweir-xdp.so")),
        };
        command
    }
}

/// The functions `xsk_*` that a library exports, with their versions.
fn exported(library: &Path) -> Result<Vec<String>> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--dyn-syms"]).arg(library);
    let table = run(&mut readelf)?;
    let names = table.lines().filter(|line| !line.contains(" UND "));
    let mut names: Vec<String> = names
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|name| name.contains("@@"))
        .map(str::to_owned)
        .collect();
    names.sort();
    Ok(names)
}

/// Each function of Debian's is there, with the same version, and nothing else but those of later versions.
fn the_library_has_libxdps_versions() -> Result {
    let built = Built::libraries()?;
    let mut find = Command::new("cc");
    let debians = run(find.args(["-print-file-name=libxdp.so.1"]))?;
    let debians = Path::new(debians.trim());
    if !debians.is_absolute() {
        return Err(skip("needs libxdp1"));
    }
    let ours = exported(&built.path("libxdp.so.1"))?;
    let theirs = exported(debians)?;
    let theirs: Vec<&String> = theirs
        .iter()
        .filter(|name| name.starts_with("xsk_"))
        .collect();
    assert!(theirs.len() >= 25, "{theirs:?}");
    for name in &theirs {
        assert!(ours.contains(name), "{name} is missing in {ours:?}");
    }
    let later = [
        "xsk_umem__create_with_fd@@LIBXDP_1.4.0",
        "xsk_socket__create_opts@@LIBXDP_1.5.0",
        "xsk_umem__create_opts@@LIBXDP_1.5.0",
    ];
    for name in &ours {
        let is_known = theirs.contains(&name) || later.contains(&name.as_str());
        assert!(is_known, "{name} is not libxdp's");
    }
    let soname = run(Command::new("readelf")
        .arg("--dynamic")
        .arg(built.path("libxdp.so.1")))?;
    assert!(soname.contains("soname: [libxdp.so.1]"), "{soname}");
    Ok(())
}

fn the_headers_functions_are_exported_for_other_languages() -> Result {
    let built = Built::libraries()?;
    built.add_calling("l2fwd", "-O0")?;
    let symbols = run(Command::new("readelf")
        .args(["--wide", "--dyn-syms"])
        .arg(built.path("l2fwd")))?;
    for function in [
        "prod__reserve",
        "prod__submit",
        "cons__peek",
        "cons__release",
    ] {
        assert!(symbols.contains(function), "{function} is inlined");
    }
    crate::forward::l2fwd(&built, Way::Linked, 1000)
}
