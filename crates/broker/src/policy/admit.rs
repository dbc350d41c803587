//! The tenant of a process.

use super::{Policy, Tenant, Who};
use crate::identity::{Executable, Identity};
use std::fmt;

/// No tenant for a process. Its text is for the process, and discloses nothing of the policy; the log gets
/// [`reason`](Self::reason).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The process.
    who: String,
    /// The tenant that lacks the fewest conditions, and the first that it lacks.
    nearest: Option<(String, String)>,
    /// The name asked for.
    name: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, name, .. } = self;
        let tenant = name.as_ref().map_or("tenant".to_owned(), |name| {
            format!("tenant \"{}\"", name.escape_debug())
        });
        write!(
            f,
            "the broker's policy has no {tenant} for {who}: ask the administrator to add one to it"
        )
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// Which condition failed, for the administrator.
    pub fn reason(&self) -> String {
        match (&self.nearest, &self.name) {
            (Some((tenant, why)), _) => format!("{self}; the nearest is \"{tenant}\", but {why}"),
            (None, Some(_)) => format!("{self}; no tenant has this name"),
            (None, None) => format!("{self}; the policy has no tenants"),
        }
    }
}

impl Policy {
    /// The first tenant whose conditions hold for a process; with a name the one of that name, if its
    /// conditions hold. It can block as long as the filesystem of the executable lets it, where a
    /// tenant names a SHA-256: not for the thread that serves others.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], when there is none.
    pub fn admit(&self, process: &Identity, name: Option<&str>) -> Result<&Tenant, Refusal> {
        let mut nearest: Option<(usize, &Tenant, String)> = None;
        let named = |tenant: &&Tenant| name.is_none_or(|name| tenant.name == name);
        for tenant in self.tenants.iter().filter(named) {
            let failed = tenant.who.failed(process);
            let Some(first) = failed.first() else {
                return Ok(tenant);
            };
            let count = failed.len();
            if nearest.as_ref().is_none_or(|(fewest, ..)| count < *fewest) {
                nearest = Some((count, tenant, first.clone()));
            }
        }
        Err(Refusal {
            who: process.to_string(),
            nearest: nearest.map(|(_, tenant, why)| (tenant.name.clone(), why)),
            name: name.map(|name| name.chars().take(64).collect()),
        })
    }
}

impl Who {
    /// The conditions that do not hold, as sentences. The executable is looked at only where all that
    /// is cheaper holds.
    fn failed(&self, process: &Identity) -> Vec<String> {
        let cheap = [
            self.user(process),
            self.group(process),
            self.control_group(process),
            self.container(process),
        ];
        let failed: Vec<_> = cheap.into_iter().flatten().collect();
        if !failed.is_empty() {
            return failed;
        }
        let costly = self
            .file(&process.executable)
            .or_else(|| self.bytes(&process.executable));
        costly.into_iter().collect()
    }

    fn user(&self, process: &Identity) -> Option<String> {
        let holds = self.uids.is_empty() || self.uids.contains(&process.uid);
        (!holds).then(|| format!("its uid is {}", process.uid))
    }

    fn group(&self, process: &Identity) -> Option<String> {
        let holds = self.gids.is_empty() || self.gids.contains(&process.gid);
        (!holds).then(|| format!("its gid is {}", process.gid))
    }

    fn control_group(&self, process: &Identity) -> Option<String> {
        let wanted = self.cgroup.as_deref()?;
        let Some(actual) = process.cgroup.as_deref() else {
            return Some("its control group is unknown".into());
        };
        let below = actual.strip_prefix(wanted);
        let holds = below.is_some_and(|below| below.is_empty() || below.starts_with('/'));
        (!holds).then(|| format!("its control group is {}", actual.escape_debug()))
    }

    /// A runtime's description counts if root runs it, or a user of the tenant.
    fn container(&self, process: &Identity) -> Option<String> {
        if self.container.is_none() && self.annotations.is_empty() {
            return None;
        }
        let Some(container) = &process.container else {
            return Some("no runtime told that it is in a container".into());
        };
        let runtime = container.runtime_uid;
        if runtime != 0 && !self.uids.contains(&runtime) {
            return Some(format!(
                "uid {runtime} told of its container, who is neither root nor in `uid`"
            ));
        }
        if self
            .container
            .as_ref()
            .is_some_and(|id| *id != container.id)
        {
            return Some(format!("its container is {}", container.id.escape_debug()));
        }
        let has = |key, value| container.annotations.get(key) == Some(value);
        let mut lacking = self
            .annotations
            .iter()
            .filter(|(key, value)| !has(*key, value));
        let (key, value) = lacking.next()?;
        Some(format!(
            "its container has no annotation \"{}\" = \"{}\"",
            key.escape_debug(),
            value.escape_debug()
        ))
    }

    /// The very file, not its name: a process with a mount namespace of its own chooses names.
    fn file(&self, executable: &Executable) -> Option<String> {
        let path = self.executable.as_deref()?;
        match executable.is_file_at(path) {
            Ok(true) => None,
            Ok(false) if executable.path() == path => Some(format!(
                "its executable is another file than {}: replaced since it started, or of another mount namespace",
                path.display()
            )),
            Ok(false) => Some(format!("its executable is {executable}")),
            Err(error) => Some(format!("the broker cannot see {}: {error}", path.display())),
        }
    }

    fn bytes(&self, executable: &Executable) -> Option<String> {
        let wanted = self.sha256?;
        match executable.sha256() {
            Ok(actual) if actual == wanted => None,
            Ok(actual) => {
                let digits = actual.iter().map(|byte| format!("{byte:02x}"));
                Some(format!(
                    "the SHA-256 of {executable} is {}",
                    digits.collect::<String>()
                ))
            }
            Err(error) => Some(format!("its executable has no SHA-256: {error}")),
        }
    }
}
