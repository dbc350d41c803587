//! The container of a process, by the path of its control group (cgroups(7)).

/// The prefixes of a scope's name that systemd's manager of each engine sets before the id.
const ENGINES: [&str; 5] = [
    "docker-",
    "libpod-payload-",
    "libpod-",
    "cri-containerd-",
    "crio-",
];
/// Digits of an id in full, and the fewest that an engine shows.
const ID: usize = 64;
const SHORT_ID: usize = 12;

/// The id or the name of the innermost container in the text of `/proc/PID/cgroup`. The names that
/// runc(8) and crun(1) are given can be any, so these are not known.
pub(super) fn read(groups: &str) -> Option<String> {
    // `HIERARCHY:CONTROLLERS:PATH`, where colons can be in the path.
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.into_iter().find_map(of_path)
}

fn of_path(path: &str) -> Option<String> {
    path.rsplit('/').find_map(of_component)
}

fn of_component(component: &str) -> Option<String> {
    let scope = component.strip_suffix(".scope").unwrap_or(component);
    let id = ENGINES.iter().find_map(|engine| {
        let id = scope.strip_prefix(engine)?;
        (is_hex(id) && id.len() >= SHORT_ID).then_some(id)
    });
    // Without systemd's manager, or as `SLICE:cri-containerd:ID`.
    let last = scope.rsplit(':').next().unwrap_or_default();
    let full = || (is_hex(last) && last.len() == ID).then_some(last);
    let id = id.or_else(full).map(Into::into);
    id.or_else(|| lxc(component)).or_else(|| machine(component))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn lxc(component: &str) -> Option<String> {
    let name = component.strip_prefix("lxc.payload.")?;
    (!name.is_empty()).then(|| name.into())
}

/// The name of a container of systemd-machined(8). libvirt names its virtual machines so too, whose
/// processes are in no container.
fn machine(component: &str) -> Option<String> {
    let scope = component.strip_prefix("machine-");
    let scope = scope.and_then(|name| name.strip_suffix(".scope"));
    let unit = component.strip_prefix("systemd-nspawn@");
    let unit = unit.and_then(|name| name.strip_suffix(".service"));
    // systemd-escape(1).
    let name = scope.or(unit)?.replace("\\x2d", "-");
    (!name.is_empty() && !name.starts_with("qemu-")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id of 64 digits.
    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn container(path: &str) -> Option<String> {
        read(&format!("0::{}\n", path.replace("ID", ID)))
    }

    #[test]
    fn an_id_is_found_in_the_paths_of_engines() {
        for path in [
            "/system.slice/docker-ID.scope",
            "/system.slice/docker-ID.scope/init",
            "/docker/ID",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
            "/machine.slice/libpod-ID.scope",
            "/libpod_parent/libpod-payload-ID",
            "/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-pod1.slice/crio-ID.scope",
            "/kubepods/besteffort/pod0b1c/ID",
            "/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:ID",
        ] {
            assert_eq!(container(path).as_deref(), Some(ID), "{path}");
        }
        let short = container("/system.slice/docker-0123456789ab.scope");
        assert_eq!(short.as_deref(), Some("0123456789ab"));
    }

    #[test]
    fn lxc_and_machines_have_names() {
        for (path, name) in [
            ("/lxc.payload.web-1/init.scope", "web-1"),
            ("/machine.slice/machine-debian\\x2d13.scope", "debian-13"),
            ("/machine.slice/systemd-nspawn@web.service/payload", "web"),
        ] {
            assert_eq!(container(path).as_deref(), Some(name), "{path}");
        }
        let inner = container("/lxc.payload.outer/system.slice/docker-ID.scope");
        assert_eq!(inner.as_deref(), Some(ID), "the innermost");
    }

    #[test]
    fn other_groups_are_no_containers() {
        for path in [
            "/",
            "",
            "/user.slice/user-0.slice/session-1.scope",
            "/system.slice/docker.service",
            "/machine.slice/libpod-conmon-ID.scope",
            "/system.slice/docker-.scope",
            "/system.slice/docker-notanumber0.scope",
            "/process_api/e1fa0c4aceb21f69057297fe483a7640",
            "/lxc.payload.",
            "/machine.slice/machine-qemu\\x2d1\\x2dguest.scope",
            "/machine.slice/machine-.scope",
        ] {
            assert_eq!(container(path), None, "{path}");
        }
        for groups in ["", "0", "0:", "0::", ":::::", "\n\n", "docker/ID"] {
            assert_eq!(read(groups), None, "{groups}");
        }
    }

    #[test]
    fn any_hierarchy_of_cgroup_v1_tells() {
        let groups = format!("9:name=systemd:/\n4:memory:/docker/{ID}\n0::/\n");
        assert_eq!(read(&groups).as_deref(), Some(ID));
    }
}
