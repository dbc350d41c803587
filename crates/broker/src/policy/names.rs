//! Names of users and groups.

use std::collections::HashMap;

/// The names of `/etc/passwd` and `/etc/group`. Names from elsewhere (LDAP, systemd-homed) are not
/// looked up: it would take foreign code into the broker.
#[derive(Debug, Clone, Default)]
pub struct Names {
    users: HashMap<String, u32>,
    groups: HashMap<String, u32>,
}

impl Names {
    /// Those of this host; a file that cannot be read has none.
    pub fn of_host() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::new(&read("/etc/passwd"), &read("/etc/group"))
    }

    /// Those of the texts of such files, passwd(5) and group(5).
    pub fn new(passwd: &str, group: &str) -> Self {
        Self {
            users: ids(passwd),
            groups: ids(group),
        }
    }

    pub(super) fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
    }

    pub(super) fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }
}

/// `NAME:PASSWORD:ID:…` of each line; the first of a name counts, as for getpwnam(3).
fn ids(text: &str) -> HashMap<String, u32> {
    let mut ids = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let name = fields.next().unwrap_or_default();
        let id = fields.nth(1).and_then(|id| id.parse().ok());
        if let (false, Some(id)) = (name.is_empty(), id) {
            ids.entry(name.to_owned()).or_insert(id);
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_id_of_their_first_line() {
        let names = Names::new(
            "bind:x:105:110::/:/bin/false\nbad:x\n:x:7:\nbind:x:0:0::/:/bin/sh\n",
            "bind:x:110:\n",
        );
        assert_eq!(names.user("bind"), Some(105));
        assert_eq!(names.group("bind"), Some(110));
        assert_eq!(names.user("bad"), None);
        assert_eq!(names.user(""), None);
    }
}
