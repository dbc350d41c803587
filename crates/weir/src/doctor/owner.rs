//! The processes of sockets, in words.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::context::{Context, Owner};

/// The processes that have sockets open, as far as this process may see.
pub struct Processes(BTreeMap<u32, Owner>);

impl Processes {
    /// Those of the sockets with these inodes.
    pub fn of(context: &Context, inodes: &BTreeSet<u32>) -> Result<Self> {
        Ok(Self(context.owners(inodes)?))
    }

    /// The process of a socket.
    pub fn owner(&self, inode: u32) -> String {
        self.0.get(&inode).map_or_else(
            || "a process that cannot be seen from here".into(),
            |owner| process(owner.pid, &owner.comm),
        )
    }
}

/// A process by its number and its name, which it chooses itself.
pub fn process(pid: u32, name: &str) -> String {
    let name: String = name.chars().flat_map(char::escape_debug).collect();
    format!("pid {pid} ({name})")
}

#[cfg(test)]
mod tests {
    use super::process;

    #[test]
    fn hostile_names_are_escaped() {
        assert_eq!(process(7, "a\x1b[2Jb"), "pid 7 (a\\u{1b}[2Jb)");
    }
}
