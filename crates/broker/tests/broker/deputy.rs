//! Attacks on the broker as a deputy: calls that it makes for a caller, in the caller's namespaces and in its
//! own, with real programs of an ordinary user below `weir run`.

use crate::ensure;
use crate::lab::{Broker, Lab, NOBODY, tenant_command, wait_until};
use crate::supervised::Result;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Skip, Test, tests};

pub fn tests() -> Vec<Test> {
    tests![
        a_node_on_a_mount_without_devices_stays_closed,
        the_hosts_mount_table_is_not_filled,
        a_session_has_its_number_of_mounts,
        a_tmpfs_mounted_again_opens_no_device,
        state_and_revoke_are_asked_at_roots_socket,
        root_without_privilege_is_no_runtime,
        a_program_that_an_image_takes_over_is_alone,
        landlock_holds_for_calls_made_by_the_broker,
    ]
}

/// A directory of the tenant's below a lab's, and perhaps a mount on it.
struct Directory {
    path: PathBuf,
    is_mounted: bool,
}

impl Directory {
    fn new(lab: &Lab) -> Result<Self> {
        let path = lab.path("own");
        fs::create_dir(&path)?;
        chown(&path, Some(NOBODY), Some(NOBODY))?;
        Ok(Self {
            path,
            is_mounted: false,
        })
    }

    /// On a filesystem that the host has mounted without devices.
    fn without_devices(lab: &Lab) -> Result<Self> {
        let mut directory = Self::new(lab)?;
        let options = Some(c"mode=777");
        mount("none", &directory.path, "tmpfs", MountFlags::NODEV, options)?;
        directory.is_mounted = true;
        Ok(directory)
    }

    /// Mounts below it, as this process sees them.
    fn mounts_below(&self) -> Result<usize> {
        let below = format!(" {}/", self.path.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(mounts.lines().filter(|line| line.contains(&below)).count())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = unmount(&self.path, UnmountFlags::DETACH);
        }
    }
}

const MKNOD: &str = "[[tenant]]\nname = \"one\"\nuid = 65534\n[tenant.calls]\nmknod = [\"null\"]\n";

/// The output of a shell's commands under supervision, in a directory.
fn shell(lab: &Lab, directory: &Path, script: &str) -> Result<String> {
    let words = ["sh", "-c", script];
    let mut command = tenant_command(lab, NOBODY, "supervised", &words);
    let output = command.current_dir(directory).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The same as root of a user namespace; `flags` are further ones of unshare(1).
fn shell_of_root(lab: &Lab, directory: &Path, flags: &str, script: &str) -> Result<String> {
    let probe = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["unshare", "--user", "--map-root-user", "true"])
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        return Err(
            Skip::new("needs setpriv, unshare and user namespaces of ordinary users").into(),
        );
    }
    let script = format!("exec unshare --user --map-root-user {flags} sh -c '{script}'");
    shell(lab, directory, &script)
}

fn a_node_on_a_mount_without_devices_stays_closed() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, MKNOD)?;
    let directory = Directory::without_devices(&lab)?;
    let own = &directory.path;
    // The host's mount; and the same one copied into a mount namespace that is the caller's.
    for flags in ["", "--mount"] {
        let script = "mknod n c 1 3 && (cat <n) && echo opened; rm n && echo removed";
        let said = shell_of_root(&lab, own, flags, script)?;
        ensure!(!said.contains("opened"), "{flags}: {said}");
        ensure!(said.contains("removed"), "{flags}: {said}");
    }
    // One of its own without devices.
    let script = "mkdir -p at && mount -t tmpfs -o nodev none at && cd at && mknod n c 1 3 && cat <n && echo opened";
    let said = shell_of_root(&lab, own, "--mount", script)?;
    ensure!(!said.contains("opened"), "{said}");
    // One with them: the broker puts the host's device there.
    let said = shell_of_root(&lab, own, "--mount", &script.replace("-o nodev", ""))?;
    ensure!(said.contains("opened"), "{said}");
    ensure!(directory.mounts_below()? == 0);
    drop(directory);
    broker.stop()
}

fn the_hosts_mount_table_is_not_filled() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, MKNOD)?;
    let directory = Directory::without_devices(&lab)?;
    let script = "for i in 1 2 3 4 5 6 7 8; do mknod n$i c 1 3; done; echo done; read line";
    let words = ["unshare", "--user", "--map-root-user", "sh", "-c", script];
    let mut command = tenant_command(&lab, NOBODY, "supervised", &words);
    let mut process = testkit::Process::start(command.current_dir(&directory.path))?;
    let line = process.line()?;
    if line.contains("unshare") {
        return Err(Skip::new("needs user namespaces of ordinary users").into());
    }
    ensure!(line == "done", "{line}");
    let nodes = fs::read_dir(&directory.path)?.count();
    ensure!(nodes == 8, "{nodes} nodes: {}", broker.log());
    ensure!(directory.mounts_below()? == 0);
    process.kill()?;
    drop(directory);
    broker.stop()
}

fn a_session_has_its_number_of_mounts() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, MKNOD)?;
    let directory = Directory::new(&lab)?;
    let script = "mkdir at && mount -t tmpfs none at && cd at; i=0; while mknod n$i c 1 3; do i=$((i + 1)); done; echo $i
        umount n0 && rm n0 && mknod n0 c 1 3 && echo another";
    let said = shell_of_root(&lab, &directory.path, "--mount", script)?;
    let lines: Vec<_> = said.lines().collect();
    ensure!(lines.contains(&"1024"), "{said}");
    ensure!(said.contains("No space left on device"), "{said}");
    // Before Linux 6.11 one that is gone counts nevertheless.
    if kernel_counts_mounts() {
        ensure!(lines.contains(&"another"), "{said}");
    }
    drop(directory);
    broker.stop()
}

/// Whether namespaces have unique numbers (6.11).
fn kernel_counts_mounts() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

const TMPFS: &str = "[[tenant]]\nname = \"one\"\nuid = 65534\n[tenant.calls]\nmount = { filesystems = \"tmpfs\" }\n";

/// Root of a user namespace can take the flags of a mount away, not the owner of its filesystem.
fn a_tmpfs_mounted_again_opens_no_device() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, TMPFS)?;
    let directory = Directory::new(&lab)?;
    let script = "mkdir at && mount -i -t tmpfs -o nosuid,nodev none at && mount -o remount,bind,dev,suid none at; \
        grep -c \"at .*nodev\" /proc/self/mountinfo; echo $$; read line; cat <at/null && echo opened";
    let script = format!("exec unshare --user --map-root-user --mount sh -c '{script}'");
    let mut command = tenant_command(&lab, NOBODY, "supervised", &["sh", "-c", &script]);
    let mut process = testkit::Process::start(command.current_dir(&directory.path))?;
    let line = process.line()?;
    if line.contains("unshare") {
        return Err(Skip::new("needs user namespaces of ordinary users").into());
    }
    ensure!(
        line == "0",
        "the flag is there yet: {line} {}",
        broker.log()
    );
    let pid = process.line()?;
    // As the handler of mknod(2) makes it: with the caller's user, and a capability.
    let node = format!("/proc/{pid}/root{}/at/null", directory.path.display());
    let status = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args([
            "--inh-caps=+mknod,+dac_override",
            "--ambient-caps=+mknod,+dac_override",
        ])
        .args(["mknod", "-m", "666", &node, "c", "1", "3"])
        .status()?;
    ensure!(status.success(), "{status}");
    process.say("go")?;
    process.close();
    let rest = process.line();
    ensure!(rest.is_err(), "{rest:?}");
    drop(directory);
    broker.stop()
}

/// Root of a container without a user namespace is uid 0, and may have the socket that lends sockets.
fn state_and_revoke_are_asked_at_roots_socket() -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, MKNOD)?;
    for request in ["weir 2 status\n", "weir 2 revoke\nlease=1\n"] {
        let socket = broker::message::connect_to(&lab.path("broker.sock"))?;
        broker::message::send_text(&socket, request, None)?;
        let reply = broker::message::receive_text(&socket)?;
        ensure!(reply.head() != "ok" && reply.fd.is_none(), "{reply:?}");
    }
    let admin = lab.path("admin.sock");
    let mode = fs::metadata(&admin)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    // Opened by mistake, it answers no one else.
    fs::set_permissions(&admin, fs::Permissions::from_mode(0o666))?;
    let words = ["status", "revoke"];
    for word in words {
        let mut command = tenant_command(&lab, NOBODY, "asks", &[word]);
        let output = command.env("WEIR_BROKER", &admin).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(said.contains("only root"), "{said}");
    }
    ensure!(broker.status()?["version"].is_string());
    broker.stop()
}

fn root_without_privilege_is_no_runtime() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, MKNOD)?;
    let connect = |wrapper: &[&str]| -> Result<()> {
        let (program, arguments) = wrapper.split_first().ok_or("a wrapper")?;
        let mut command = Command::new(program);
        command.args(arguments).arg(std::env::current_exe()?);
        command.env("WEIR_BROKER_OCI", lab.path("oci.sock"));
        let status = command.env(crate::roles::ROLE, "plays_runtime").status();
        let status = status.map_err(|error| Skip::new(format!("needs {program}: {error}")))?;
        ensure!(status.success(), "{wrapper:?}: {status}");
        Ok(())
    };
    let refused = || broker.log().matches("CAP_SYS_ADMIN on the host").count();
    connect(&["setpriv", "--bounding-set", "-sys_admin", "--"])?;
    ensure!(wait_until(|| refused() == 1), "{}", broker.log());
    connect(&["unshare", "--user", "--map-root-user", "--"])?;
    ensure!(wait_until(|| refused() == 2), "{}", broker.log());
    connect(&["env", "--"])?;
    // It has been looked at, since its connection has ended.
    ensure!(refused() == 2, "{}", broker.log());
    broker.stop()
}

/// Role: a container's runtime that sends nothing, as far as the broker lets it.
pub fn plays_runtime() -> Result<()> {
    use std::io::Read as _;
    let path = std::env::var("WEIR_BROKER_OCI")?;
    let mut connection = std::os::unix::net::UnixStream::connect(path)?;
    let _ = connection.read(&mut [0]);
    Ok(())
}

/// Role `asks status|revoke`: the broker's answer.
pub fn asks(arguments: &[String]) -> Result<()> {
    let path = PathBuf::from(std::env::var("WEIR_BROKER")?);
    let asked = match arguments.first().map(String::as_str) {
        Some("status") => broker::client::status(&path),
        _ => broker::client::revoke(&path, 1),
    };
    match asked {
        Ok(answer) => println!("{answer}"),
        Err(error) => println!("{error:#}"),
    }
    Ok(())
}

/// An image that takes its program over: it writes what it can do into itself, and leaves children.
const EVIL: &str = r#"use Socket;
open(my $out, '+<', $0) or exit 1;
seek($out, 0, 2);
sub told { print $out "told $_[0]\n"; }
told(socket(my $udp, PF_INET, SOCK_DGRAM, 0) ? "udp" : "no udp");
told(socket(my $unix, PF_UNIX, SOCK_SEQPACKET, 0) ? "unix" : "no unix");
told("pid $$");
told(system("/usr/bin/true") == 0 ? "exec" : "no exec");
for (1 .. 5) { if (!fork) { $0 = "weir-evil-MARK"; sleep 300; exit 0; } }
close $out;
open(my $fuse, '+<&=', ($ARGV[0] =~ /(\d+)$/)[0]) or exit 1;
sysread($fuse, my $request, 1 << 20);
$0 = "weir-evil-MARK";
sleep 300;
"#;

fn a_program_that_an_image_takes_over_is_alone() -> Result<()> {
    if !Path::new("/usr/bin/perl").exists() || !Path::new("/dev/fuse").exists() {
        return Err(Skip::new("needs perl and /dev/fuse").into());
    }
    let lab = Lab::new(1)?;
    // The policy refuses an interpreter, so here it is by another name.
    fs::copy("/usr/bin/perl", "/usr/local/bin/weir-test-evil")?;
    let _evil = Removed("/usr/local/bin/weir-test-evil".into());
    let policy = "[[tenant]]\nname = \"one\"\nuid = 65534\n[tenant.calls]\nmount = { fuse = { evil = \"/usr/local/bin/weir-test-evil\" } }\n";
    let broker = Broker::start(&lab, policy)?;
    let directory = Directory::new(&lab)?;
    let mark = format!("{}", std::process::id());
    let image = directory.path.join("image");
    fs::write(
        &image,
        format!("{}\n__END__\n", EVIL.replace("MARK", &mark)),
    )?;
    chown(&image, Some(NOBODY), Some(NOBODY))?;
    let script = "read go; ulimit -n 100; mkdir at && mount -i -t fuse.evil image at; echo \"mounted $?\"; read line";
    let script = format!("exec unshare --user --map-root-user --mount sh -c '{script}'");
    let mut command = tenant_command(&lab, NOBODY, "supervised", &["sh", "-c", &script]);
    let mut process = testkit::Process::start(command.current_dir(&directory.path))?;
    // Else the broker's is the caller's.
    let group = crate::attack::Group::new("evil").ok();
    if let Some(group) = &group {
        group.add(&process)?;
    }
    process.say("go")?;
    let line = process.line()?;
    if line.contains("unshare") {
        return Err(Skip::new("needs user namespaces of ordinary users").into());
    }
    ensure!(line == "mounted 0", "{line}: {}", broker.log());
    let told = fs::read_to_string(&image)?;
    let told: Vec<_> = told
        .lines()
        .filter_map(|it| it.strip_prefix("told "))
        .collect();
    ensure!(
        told == ["no udp", "no unix", "pid 1", "no exec"],
        "{told:?}"
    );
    let name = format!("weir-evil-{mark}");
    // Each gives itself its name.
    let all = || processes(&name).is_ok_and(|evil| evil.len() == 6);
    ensure!(crate::lab::wait_until(all), "{:?}", processes(&name)?);
    let evil = processes(&name)?;
    let namespace = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}"));
    let broker_id = broker.process.id().to_string();
    let caller_id = process.id().to_string();
    for pid in &evil {
        for kind in ["pid", "net"] {
            ensure!(namespace(pid, kind)? != namespace(&broker_id, kind)?);
        }
        let of = |pid: &str, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let files = |pid: &str| -> Result<String> {
            let limits = of(pid, "limits")?;
            let line = limits
                .lines()
                .find(|line| line.starts_with("Max open files"));
            Ok(line.ok_or("its limit")?.to_owned())
        };
        ensure!(files(pid)? == files(&caller_id)?, "{}", files(pid)?);
        let groups = of(pid, "cgroup")?;
        ensure!(groups == of(&caller_id, "cgroup")?, "{groups}");
        ensure!(group.is_none() || groups.contains("weir-evil"), "{groups}");
    }
    process.kill()?;
    ensure!(
        crate::lab::wait_until(|| processes(&name).is_ok_and(|left| left.is_empty())),
        "they are left: {:?}",
        processes(&name)?
    );
    drop(directory);
    broker.stop()
}

/// A file that goes with its test.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Processes by their command line.
fn processes(name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_string_lossy().into_owned();
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if line.starts_with(name) {
            found.push(pid);
        }
    }
    Ok(found)
}

const CALLS: &str = "[[tenant]]\nname = \"one\"\nuid = 65534\n[tenant.calls]\nmknod = [\"null\"]\nconnect = [ { from = \"192.0.2.1:80\", to = [\"127.0.0.1:PORT\"] } ]\n";

/// A program that forbids itself connections, and its descendants, are not helped to them.
fn landlock_holds_for_calls_made_by_the_broker() -> Result<()> {
    let lab = Lab::new(1)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port().to_string();
    let broker = Broker::start(&lab, &CALLS.replace("PORT", &port))?;
    let directory = Directory::new(&lab)?;
    let mut command = tenant_command(&lab, NOBODY, "landlocked", &[&port]);
    let output = command.current_dir(&directory.path).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.contains("no Landlock") {
        return Err(Skip::new("needs Landlock of TCP (6.7)").into());
    }
    let lines: BTreeSet<_> = said.lines().collect();
    let (denied, not_permitted) = ("Permission denied", "Operation not permitted");
    let mut expected = BTreeSet::new();
    for who in ["itself", "child", "orphan"] {
        expected.insert(format!("{who} 127.0.0.1:{port}: {denied}"));
        expected.insert(format!("{who} 192.0.2.1:80: {denied}"));
        expected.insert(format!("{who} mknod: {not_permitted}"));
    }
    // The rest of the tree has its grants.
    for call in [&format!("127.0.0.1:{port}"), "192.0.2.1:80", "mknod"] {
        expected.insert(format!("parent {call}: done"));
    }
    let expected: BTreeSet<_> = expected.iter().map(String::as_str).collect();
    ensure!(lines == expected, "{lines:#?}\n{}", broker.log());
    drop(directory);
    broker.stop()
}

/// Role `landlocked PORT`: has a child restrict itself, and prints what all of them can do.
pub fn landlocked(arguments: &[String]) -> Result<()> {
    let port = arguments.first().ok_or("a port")?;
    let broker = std::env::var("WEIR_BROKER")?;
    broker::supervise::run::supervise(broker.as_ref(), None)?;
    part("sandbox", port).status()?;
    tries("parent", port);
    Ok(())
}

/// This program in another part.
fn part(name: &str, port: &str) -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .env(crate::roles::ROLE, "sandbox")
        .args([name, port]);
    command
}

/// Role `sandbox NAME PORT`: restricts itself and starts others, or is one of those.
pub fn sandbox(arguments: &[String]) -> Result<()> {
    use landlock::{AccessNet, RulesetStatus};
    use landlock::{Ruleset, RulesetAttr as _};
    let [name, port] = arguments else {
        return Err("NAME PORT".into());
    };
    match name.as_str() {
        "sandbox" => {
            let rules = Ruleset::default()
                .handle_access(AccessNet::ConnectTcp)?
                .create()?;
            if rules.restrict_self()?.ruleset == RulesetStatus::NotEnforced {
                println!("no Landlock");
                return Ok(());
            }
            tries("itself", port);
            part("child", port).status()?;
            // Its parent ends before it begins.
            part("middle", port).status()?;
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        "middle" => drop(part("orphan", port).spawn()?),
        "orphan" => {
            std::thread::sleep(std::time::Duration::from_millis(50));
            tries(name, port);
        }
        name => tries(name, port),
    }
    Ok(())
}

/// Connects without and with a redirection, and makes a node.
fn tries(name: &str, port: &str) {
    let own = format!("127.0.0.1:{port}");
    let say = |call: &str, outcome: std::io::Result<()>| match outcome {
        Ok(()) => println!("{name} {call}: done"),
        Err(error) => {
            let text = error.to_string();
            let text = text.split(" (os").next().unwrap_or_default();
            println!("{name} {call}: {text}");
        }
    };
    for address in [own.as_str(), "192.0.2.1:80"] {
        let connected = std::net::TcpStream::connect(address).map(drop);
        say(address, connected);
    }
    let kind = rustix::fs::FileType::CharacterDevice;
    let (mode, device) = (rustix::fs::Mode::RUSR, rustix::fs::makedev(1, 3));
    let node = rustix::fs::mknodat(rustix::fs::CWD, name, kind, mode, device);
    say("mknod", node.map_err(Into::into));
}
