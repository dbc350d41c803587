//! Containers of this program, by the runtimes that are installed.

use super::steps::CONTAINED;
use crate::lab::{Lab, NOBODY, wait_until};
use crate::supervised::Result;
use broker::policy::Policy;
use broker::supervise::handlers;
use broker::supervise::profile::profile;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::limit::longest;
use testkit::{Process, skip};

/// A tenant for containers that root runs, and one for those of nobody.
pub const POLICY: &str = r#"
[[tenant]]
name = "box"
annotations = { "weir.box" = "yes" }
[[tenant.device]]
name = "wan0"
queues = "0"
lease = ["rx", "tx"]
modes = ["drv", "skb"]
[tenant.calls]
af-xdp = true
mknod = ["null", "zero", "full"]
mount = { filesystems = "tmpfs", fuse = { squashfs = "/usr/bin/squashfuse" } }

[[tenant]]
name = "rootless"
uid = [65534]
annotations = { "weir.box" = "yes" }
[[tenant.device]]
name = "wan0"
queues = "0"
lease = ["rx", "tx"]
modes = ["drv", "skb"]
[tenant.calls]
af-xdp = true
mknod = ["null", "zero", "full"]
mount = { filesystems = "tmpfs", fuse = { squashfs = "/usr/bin/squashfuse" } }
"#;

/// The longest time of a container.
const LIMIT: Duration = Duration::from_secs(60);

/// A container runtime, and how its containers are unprivileged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime {
    pub program: &'static str,
    /// Root of the container is another user outside of it.
    pub has_users: bool,
    /// Run by nobody.
    pub is_rootless: bool,
}

const fn by_root(program: &'static str, has_users: bool) -> Runtime {
    Runtime {
        program,
        has_users,
        is_rootless: false,
    }
}

pub const RUNC: Runtime = by_root("runc", true);
pub const CRUN: Runtime = by_root("crun", true);
pub const PODMAN: Runtime = Runtime {
    program: "podman",
    has_users: true,
    is_rootless: true,
};

/// All that are tried.
pub const RUNTIMES: &[Runtime] = &[
    RUNC,
    by_root("runc", false),
    CRUN,
    by_root("crun", false),
    PODMAN,
];

/// The first of the users of a container with users of its own.
const FIRST_USER: u32 = 100_000;

impl Runtime {
    pub fn name(&self) -> String {
        let kind = match (self.is_rootless, self.has_users) {
            (true, _) => "rootless",
            (false, true) => "users",
            (false, false) => "root",
        };
        format!("{} {kind}", self.program)
    }

    /// Why it is not tried here.
    pub fn check(&self) -> Result<()> {
        let found = Command::new(self.program)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(skip(format!("needs {}", self.program)));
        }
        if self.has_users && !Path::new("/proc/self/ns/user").exists() {
            return Err(skip("needs user namespaces"));
        }
        Ok(())
    }

    /// The user outside that is root inside.
    fn owner(&self) -> u32 {
        match (self.is_rootless, self.has_users) {
            (true, _) => NOBODY,
            (false, true) => FIRST_USER,
            (false, false) => 0,
        }
    }

    fn tenant(&self) -> &'static str {
        if self.is_rootless { "rootless" } else { "box" }
    }

    /// Whether it knows the flag, without which a signal interrupts a notified call.
    fn knows_flag(&self) -> bool {
        let features = Command::new(self.program).arg("features").output();
        self.program != "runc"
            || features.is_ok_and(|output| {
                String::from_utf8_lossy(&output.stdout).contains("WAIT_KILLABLE_RECV")
            })
    }

    /// The command, with its state in the lab. crun takes a hierarchy of cgroup v2 beside those of v1 for
    /// the only one: it is hidden.
    fn command(&self, lab: &Lab) -> Command {
        let mut words: Vec<String> = Vec::new();
        let mut add = |text: &str| words.extend(text.split(' ').map(ToOwned::to_owned));
        let limit = longest(LIMIT).as_secs();
        add(&format!("timeout --kill-after=5 {limit}"));
        let unified = "/sys/fs/cgroup/unified";
        let is_mixed =
            fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| mounts.contains(unified));
        if is_mixed && self.program != "runc" {
            add("unshare --mount sh -c");
            words.push(format!("umount {unified} && exec \"$0\" \"$@\""));
        }
        let mut add = |text: &str| words.extend(text.split(' ').map(ToOwned::to_owned));
        let state = lab.path("state-of-containers");
        let state = state.display();
        if self.is_rootless {
            add(&format!(
                "setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"
            ));
            add(&format!(
                "env -u XDG_CONFIG_HOME -C / HOME={state} XDG_RUNTIME_DIR={state}/run USER=nobody"
            ));
            add(self.program);
        } else {
            add(&format!("{} --root {state}", self.program));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

/// A container, ready to run. Dropped, it is killed.
pub struct Container<'l> {
    lab: &'l Lab,
    runtime: Runtime,
    pub id: String,
    bundle: PathBuf,
}

impl<'l> Container<'l> {
    /// One whose program plays these steps. `weir` is a program that prints its profile.
    pub fn new(
        lab: &'l Lab,
        runtime: Runtime,
        steps: &[&str],
        weir: Option<&Path>,
    ) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = format!("weir-test-{}-{number}", std::process::id());
        let bundle = lab.path(&id);
        let container = Self {
            lab,
            runtime,
            id,
            bundle,
        };
        container.make_root()?;
        let profile = container.profile(weir)?;
        let config = container.config(steps, &profile);
        fs::write(container.bundle.join("profile.json"), profile.to_string())?;
        fs::write(container.bundle.join("config.json"), config.to_string())?;
        let state = lab.path("state-of-containers");
        fs::create_dir_all(state.join("run"))?;
        if runtime.is_rootless {
            chown(&state, Some(NOBODY), Some(NOBODY))?;
            chown(state.join("run"), Some(NOBODY), Some(NOBODY))?;
            fs::set_permissions(state.join("run"), fs::Permissions::from_mode(0o700))?;
        }
        Ok(container)
    }

    fn root(&self) -> PathBuf {
        self.bundle.join("root")
    }

    /// This program and its libraries, and some directories.
    fn make_root(&self) -> Result<()> {
        let root = self.root();
        for name in ["dev", "proc", "sys", "etc", "tmp", "work", "images", "run"] {
            fs::create_dir_all(root.join(name))?;
        }
        let maps = fs::read_to_string("/proc/self/maps")?;
        let mut libraries: Vec<_> = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .filter(|path| path.contains(".so"))
            .map(PathBuf::from)
            .collect();
        libraries.dedup();
        for library in libraries {
            copy(&library, &root.join(library.strip_prefix("/")?))?;
        }
        // The loader is looked for there, which is a link to /usr on many systems.
        for directory in ["lib", "lib64"] {
            let (link, target) = (root.join(directory), root.join("usr").join(directory));
            if !link.exists() && target.exists() {
                std::os::unix::fs::symlink(format!("usr/{directory}"), link)?;
            }
        }
        link_loader(&root)?;
        copy(&std::env::current_exe()?, &root.join("program"))?;
        make_images(&root.join("images"))?;
        let owner = Some(self.runtime.owner());
        for name in ["dev", "work", "images", "run", "etc", ""] {
            let path = root.join(name);
            if path.exists() {
                chown(path, owner, owner)?;
            }
        }
        Ok(())
    }

    fn profile(&self, weir: Option<&Path>) -> Result<Value> {
        let (policy, listener) = (self.lab.path("policy.toml"), self.lab.path("oci.sock"));
        let tenant = self.runtime.tenant();
        let mut profile = if let Some(weir) = weir {
            let mut command = Command::new(weir);
            command
                .args(["profile", "--tenant", tenant, "--policy"])
                .arg(&policy)
                .arg("--listener")
                .arg(&listener);
            if let Some(base) = self.base()? {
                command.arg("--base").arg(base);
            } else {
                command.arg("--allow-others");
            }
            let output = command.output()?;
            crate::ensure!(
                output.status.success(),
                "weir profile: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            serde_json::from_slice(&output.stdout)?
        } else {
            let policy = Policy::load(&policy)?;
            let tenants = &mut policy.tenants.iter();
            let calls = &tenants
                .find(|it| it.name == tenant)
                .ok_or("a tenant")?
                .calls;
            let names = handlers::names(calls);
            let listener = listener.display().to_string();
            profile(handlers::rules(&names), None, tenant, &listener)?
        };
        if !self.runtime.knows_flag() {
            profile["flags"] = json!([]);
        }
        Ok(profile)
    }

    /// podman's own profile, which it reads otherwise, with one entry for socket(2) in place of those that
    /// compare its arguments. The other runtimes have none.
    fn base(&self) -> Result<Option<PathBuf>> {
        let own = Path::new("/usr/share/containers/seccomp.json");
        if self.runtime.program != "podman" || !own.exists() {
            return Ok(None);
        }
        let mut base: Value = serde_json::from_slice(&fs::read(own)?)?;
        let calls = base["syscalls"].as_array_mut().ok_or("a list of calls")?;
        calls.retain(|call| call["names"] != json!(["socket"]));
        calls.push(json!({ "names": ["socket"], "action": "SCMP_ACT_ALLOW" }));
        let path = self.bundle.join("base.json");
        fs::write(&path, base.to_string())?;
        Ok(Some(path))
    }

    /// `config.json` of a container with no capability.
    fn config(&self, steps: &[&str], profile: &Value) -> Value {
        let mut words = vec!["/program", CONTAINED];
        words.extend(steps);
        let mut kinds = vec!["pid", "network", "ipc", "uts", "mount"];
        if self.runtime.has_users {
            kinds.push("user");
        }
        let namespaces: Vec<_> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
        let mut linux = json!({ "namespaces": namespaces, "seccomp": profile });
        if self.runtime.has_users {
            let map = json!([{ "containerID": 0, "hostID": FIRST_USER, "size": 65536 }]);
            linux["uidMappings"] = map.clone();
            linux["gidMappings"] = map;
        }
        let none = json!({ "bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": [] });
        json!({
            "ociVersion": "1.0.2",
            "annotations": { "weir.box": "yes" },
            "process": {
                "terminal": false, "user": { "uid": 0, "gid": 0 }, "args": words, "cwd": "/",
                "env": ["PATH=/"], "noNewPrivileges": true, "capabilities": none,
            },
            "root": { "path": self.root(), "readonly": false },
            "hostname": "box",
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"] },
            ],
            "linux": linux,
        })
    }

    /// Starts it; its program's lines are the process's.
    pub fn start(&self) -> Result<Process> {
        let mut command = self.runtime.command(self.lab);
        if self.runtime.is_rootless {
            let config: Value =
                serde_json::from_slice(&fs::read(self.bundle.join("config.json"))?)?;
            let words = config["process"]["args"].as_array().ok_or("words")?;
            let profile = self.bundle.join("profile.json");
            command
                .args([
                    "--log-level=error",
                    "run",
                    "--interactive",
                    "--runtime=crun",
                    "--cgroups=disabled",
                ])
                .args([
                    "--network=none",
                    "--annotation=weir.box=yes",
                    "--cap-drop=all",
                    "--name",
                    &self.id,
                ])
                .args(["--security-opt=no-new-privileges", "--security-opt"])
                .arg(format!("seccomp={}", profile.display()))
                .arg("--rootfs")
                .arg(self.root())
                .args(words.iter().filter_map(Value::as_str));
        } else {
            command
                .args(["run", "--bundle"])
                .arg(&self.bundle)
                .arg(&self.id);
        }
        command.stderr(fs::File::create(self.bundle.join("stderr"))?);
        Ok(Process::start(&mut command)?)
    }

    /// Starts a process in it.
    pub fn execute(&self, steps: &[&str]) -> Result<Process> {
        let mut command = self.runtime.command(self.lab);
        command
            .args(["exec", &self.id, "/program", CONTAINED])
            .args(steps);
        command.stderr(fs::File::create(self.bundle.join("stderr"))?);
        Ok(Process::start(&mut command)?)
    }

    /// The runtime's error output.
    pub fn errors(&self) -> String {
        let text = fs::read_to_string(self.bundle.join("stderr")).unwrap_or_default();
        text.trim().replace('\n', "; ")
    }

    /// Runs it to its end; the outcomes of its steps by name.
    pub fn run(&self) -> Result<Vec<(String, String)>> {
        let mut process = self.start()?;
        let mut outcomes = Vec::new();
        while let Ok(line) = process.line() {
            let (name, outcome) = line.split_once(' ').unwrap_or((&line, ""));
            outcomes.push((name.to_owned(), outcome.to_owned()));
        }
        let status = process.finish()?;
        crate::ensure!(
            status.success() || !outcomes.is_empty(),
            "{} did not start: {}",
            self.runtime.name(),
            self.errors()
        );
        Ok(outcomes)
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let mut command = self.runtime.command(self.lab);
        if self.runtime.is_rootless {
            command.args(["rm", "--force", "--time=0", &self.id]);
        } else {
            command.args(["delete", "--force", &self.id]);
        }
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if self.runtime.is_rootless {
            end_pause(&self.lab.path("state-of-containers/run"));
        }
    }
}

/// Ends the process that keeps the namespaces of a rootless podman.
fn end_pause(directory: &Path) {
    let Ok(text) = fs::read_to_string(directory.join("libpod/tmp/pause.pid")) else {
        return;
    };
    let Some(pid) = text
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    wait_until(|| !Path::new(&format!("/proc/{}", text.trim())).exists());
}

/// The same file if it can be, for this program is large.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().ok_or("a directory")?)?;
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to)?;
    }
    Ok(())
}

/// The kernel starts a dynamic program by the loader that it names.
fn link_loader(root: &Path) -> Result<()> {
    for loader in ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"] {
        let host = Path::new("/").join(loader);
        if let Ok(real) = fs::canonicalize(&host)
            && !root.join(loader).exists()
        {
            copy(&real, &root.join(loader))?;
        }
    }
    Ok(())
}

/// An image with a file, if there is a program that makes one, and a file that is none.
fn make_images(directory: &Path) -> Result<()> {
    fs::write(directory.join("garbage"), "no image")?;
    fs::set_permissions(directory.join("garbage"), fs::Permissions::from_mode(0o666))?;
    let content = directory.join("content");
    fs::create_dir_all(&content)?;
    fs::write(content.join("file"), "of the image\n")?;
    let made = Command::new("mksquashfs")
        .args([&content, &directory.join("squashfs")])
        .args(["-quiet", "-no-progress", "-all-root"])
        .stdout(Stdio::null())
        .status();
    if made.is_ok_and(|status| status.success()) {
        // The broker opens it as the container's user, to read and to write.
        let everyone = fs::Permissions::from_mode(0o666);
        fs::set_permissions(directory.join("squashfs"), everyone)?;
    }
    Ok(())
}
