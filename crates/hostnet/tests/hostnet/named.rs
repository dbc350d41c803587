//! Names in `/run/netns`, in a process with a /run of its own.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use hostnet::netns::named::{self, DIRECTORY, Directory};
use hostnet::{ErrorKind, netns};
use rustix::mount::{MountFlags, mount};

use testkit::{Need, Result, Test};

use crate::refusal;

/// Set for the process that [`run_as_child`] is for.
const CHILD: &str = "HOSTNET_TEST_NAMED";

pub fn tests() -> Vec<Test> {
    let needs = &[Need::Program("unshare"), Need::Program("ip")];
    vec![Test::new("names_come_and_go", start_child).needing(needs)]
}

fn start_child() -> Result<()> {
    let output = Command::new("unshare")
        .arg("--mount")
        .arg(std::env::current_exe()?)
        .env(CHILD, "1")
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Ok(())
}

/// Runs the test if this process was started for it: mounts of the process are its own.
pub fn run_as_child() -> Option<ExitCode> {
    std::env::var_os(CHILD)?;
    if let Err(error) = come_and_go() {
        eprintln!("{error}");
        return Some(ExitCode::FAILURE);
    }
    Some(ExitCode::SUCCESS)
}

fn come_and_go() -> Result<()> {
    mount("test", "/run", "tmpfs", MountFlags::empty(), None)?;
    assert!(Directory::lock()?.is_none());
    assert!(named::names()?.is_empty());
    let namespace = netns::create()?;
    let directory = Directory::create()?;
    directory.add("guest", namespace.as_fd())?;
    let error = refusal(directory.add("guest", namespace.as_fd()));
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    directory.release()?;

    assert_eq!(named::names()?, ["guest"]);
    let path = Path::new(DIRECTORY).join("guest");
    let opened = netns::open(&path)?;
    assert_eq!(
        netns::identity(opened.as_fd())?,
        netns::identity(namespace.as_fd())?
    );
    let found = netns::all()?.list.into_iter();
    let found: Vec<_> = found.filter(|found| found.names == ["guest"]).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0].path, &found[0].processes[..]), (&path, &[][..]));
    assert_eq!(
        netns::identity(found[0].open()?.as_fd())?,
        netns::identity(namespace.as_fd())?
    );
    let ip = |words: &[&str]| Command::new("ip").arg("netns").args(words).status();
    assert!(ip(&["exec", "guest", "true"])?.success());
    assert!(ip(&["add", "other"])?.success());

    let directory = Directory::lock()?.ok_or("the directory is there")?;
    directory.remove("guest")?;
    let error = refusal(found[0].open());
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // Again, and one that was never there.
    directory.remove("guest")?;
    directory.remove("none")?;
    directory.release()?;
    assert_eq!(named::names()?, ["other"], "the name of another stays");
    assert!(ip(&["delete", "other"])?.success());

    let directory = Directory::lock()?.ok_or("the directory is there")?;
    directory.release()?;
    assert!(!fs::exists(DIRECTORY)?, "an unused directory goes");
    Ok(())
}
