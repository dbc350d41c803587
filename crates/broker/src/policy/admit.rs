//! The tenant of a process.

use super::{Policy, Tenant, Who};
use crate::identity::{Identity, Kept, Person, Program};
use std::fmt;

/// No tenant for a process. Its text is for the process, and discloses nothing of the policy; the log gets
/// [`reason`](Self::reason).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The process.
    who: String,
    /// The tenants that lack the fewest conditions, and the first that each lacks.
    nearest: Vec<(String, String)>,
    /// The name asked for.
    name: Option<String>,
}

/// Most tenants whose reasons the log gets.
const MAX_NEAREST: usize = 4;

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
        let reasons = self.nearest.iter();
        let reasons: Vec<_> = reasons
            .map(|(tenant, why)| format!("not \"{tenant}\", for {why}"))
            .collect();
        match (&self.name, reasons.is_empty()) {
            (_, false) => format!("{self}; {}", reasons.join("; ")),
            (Some(_), true) => format!("{self}; no tenant has this name"),
            (None, true) => format!("{self}; the policy has no tenants"),
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
        self.find(&process.person(), process, name)
    }

    /// The tenant of that name, if its conditions hold for a process that an earlier broker has supervised under
    /// it.
    ///
    /// # Errors
    ///
    /// As those of [`admit`](Self::admit).
    pub fn admit_again(&self, process: &Kept, name: &str) -> Result<&Tenant, Refusal> {
        self.find(&process.person(), process, Some(name))
    }

    fn find(
        &self,
        process: &Person<'_>,
        who: &dyn fmt::Display,
        name: Option<&str>,
    ) -> Result<&Tenant, Refusal> {
        let (mut fewest, mut nearest) = (usize::MAX, Vec::new());
        let named = |tenant: &&Tenant| name.is_none_or(|name| tenant.name == name);
        for tenant in self.tenants.iter().filter(named) {
            let Some((distance, why)) = tenant.who.failed(process) else {
                return Ok(tenant);
            };
            if distance < fewest {
                fewest = distance;
                nearest.clear();
            }
            if distance == fewest && nearest.len() < MAX_NEAREST {
                nearest.push((tenant.name.clone(), why));
            }
        }
        Err(Refusal {
            who: who.to_string(),
            nearest,
            name: name.map(|name| name.chars().take(64).collect()),
        })
    }
}

impl Who {
    /// Whether all conditions hold for a process.
    pub fn holds(&self, process: &Identity) -> bool {
        self.failed(&process.person()).is_none()
    }

    /// How far a process is from all conditions, and the first that does not hold, as a sentence; none if all
    /// hold. The executable is looked at only if all that is cheaper holds, and then it alone is missing.
    fn failed(&self, process: &Person<'_>) -> Option<(usize, String)> {
        let cheap = [
            self.user(process),
            self.group(process),
            self.control_group(process),
            self.container(process),
        ];
        let count = cheap.iter().flatten().count();
        if let Some(first) = cheap.into_iter().flatten().next() {
            return Some((1 + count, first));
        }
        let costly = self
            .file(process.executable)
            .or_else(|| self.bytes(process));
        costly.map(|why| (1, why))
    }

    fn user(&self, process: &Person<'_>) -> Option<String> {
        let holds = self.uids.is_empty() || self.uids.contains(&process.uid);
        (!holds).then(|| format!("its uid is {}", process.uid))
    }

    fn group(&self, process: &Person<'_>) -> Option<String> {
        let holds = self.gids.is_empty() || self.gids.contains(&process.gid);
        (!holds).then(|| format!("its gid is {}", process.gid))
    }

    fn control_group(&self, process: &Person<'_>) -> Option<String> {
        let wanted = self.cgroup.as_deref()?;
        let Some(actual) = process.cgroup else {
            return Some("its control group is unknown".into());
        };
        let below = actual.strip_prefix(wanted);
        let holds = below.is_some_and(|below| below.is_empty() || below.starts_with('/'));
        (!holds).then(|| format!("its control group is {}", actual.escape_debug()))
    }

    /// A runtime's description counts if root runs it, or a user of the tenant.
    fn container(&self, process: &Person<'_>) -> Option<String> {
        if self.container.is_none() && self.annotations.is_empty() {
            return None;
        }
        let Some(container) = process.container else {
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
    fn file(&self, executable: &dyn Program) -> Option<String> {
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

    fn bytes(&self, process: &Person<'_>) -> Option<String> {
        let wanted = self.sha256?;
        let executable = process.executable;
        match process.sha256() {
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
