//! How many lines of the log each has: more would hide those of others.

use std::collections::BTreeMap;

/// Lines of one peer or tenant that are logged in a second, and of all: more would push others'
/// lines out of the host's log.
const MOST_OF_ONE: u32 = 20;
const MOST_OF_ALL: u32 = 200;

/// The lines of a second.
#[derive(Debug)]
pub(crate) struct Lines {
    second: u64,
    count: u32,
    by_peer: BTreeMap<String, u32>,
    /// Those that were not written, of all seconds.
    pub(crate) unwritten: u64,
}

impl Lines {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            second: 0,
            count: 0,
            by_peer: BTreeMap::new(),
            unwritten: 0,
        }
    }

    /// Whether a line is to be written.
    pub(crate) fn admit(&mut self, second: u64, whose: &str) -> bool {
        if self.second != second {
            (self.second, self.count) = (second, 0);
            self.by_peer.clear();
        }
        let has_room = self.count < MOST_OF_ALL && {
            let of_one = self.by_peer.entry(whose.to_owned()).or_insert(0);
            *of_one += 1;
            *of_one <= MOST_OF_ONE
        };
        if has_room {
            self.count += 1;
        } else {
            self.unwritten += 1;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_with_many_leaves_room_for_others() {
        let mut lines = Lines::new();
        let written = |lines: &mut Lines, second, whose: &str, tries| {
            (0..tries).filter(|_| lines.admit(second, whose)).count() as u32
        };
        assert_eq!(written(&mut lines, 7, "uid 1", 1000), MOST_OF_ONE);
        assert_eq!(lines.unwritten, 1000 - u64::from(MOST_OF_ONE));
        assert_eq!(written(&mut lines, 7, "uid 2", 3), 3);
        assert_eq!(written(&mut lines, 8, "uid 1", 3), 3);
        let mut all = 0;
        for peer in 0..1000 {
            all += written(&mut lines, 9, &peer.to_string(), 1);
        }
        assert_eq!(all, MOST_OF_ALL);
        assert!(lines.by_peer.len() <= MOST_OF_ALL as usize);
    }
}
