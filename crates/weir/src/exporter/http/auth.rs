//! Passwords, as bcrypt hashes.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bcrypt::HashParts;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

type Key = [u8; 32];

/// Most checks of passwords that wait for their turn, or have it. Each keeps a thread for as long as those before it
/// take.
const MOST_WAITING: usize = 8;

/// The users of a configuration. A new configuration has new ones, which know of no earlier login.
#[derive(Debug)]
pub struct Users {
    list: Vec<User>,
    /// Known to this process alone, so that nobody can make two logins of one digest.
    key: Key,
    /// bcrypt takes a CPU for its time: one login after the other.
    turn: Mutex<()>,
    waiting: AtomicUsize,
    most_cost: u32,
}

/// The outcome of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// The password is the user's.
    Admitted,
    /// It is not, or there is no such user.
    Refused,
    /// Not checked: too many others wait.
    Busy,
}

#[derive(Debug)]
struct User {
    name: Key,
    hash: String,
    cost: u32,
    /// The digest of the last login that was right; a wrong one is never kept.
    passed: Mutex<Option<Key>>,
}

impl Users {
    /// Users with their hashes.
    ///
    /// # Errors
    ///
    /// When the kernel has no random bytes.
    pub fn new(hashes: &BTreeMap<String, String>) -> std::io::Result<Self> {
        let mut key = Key::default();
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        let users = hashes.iter().map(|(name, hash)| User {
            name: digest(&key, &[name.as_bytes()]),
            hash: hash.clone(),
            // Those of a configuration were read before.
            cost: HashParts::from_str(hash).map_or(4, |parts| parts.get_cost()),
            passed: Mutex::default(),
        });
        let users: Vec<_> = users.collect();
        Ok(Self {
            most_cost: users.iter().map(|user| user.cost).max().unwrap_or(4),
            list: users,
            key,
            turn: Mutex::new(()),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Whether nobody needs to log in.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Checks a user's password. A refusal takes the same time whether the user exists or not, whatever the costs of
    /// their hashes. A login that was right before waits for no other.
    pub fn check(&self, name: &str, password: &[u8]) -> Login {
        let name_digest = digest(&self.key, &[name.as_bytes()]);
        let mut found = None;
        for user in &self.list {
            if bool::from(user.name.ct_eq(&name_digest)) {
                found = Some(user);
            }
        }
        let found = found.map(|user| {
            let parts = [name.as_bytes(), user.hash.as_bytes(), password];
            (user, digest(&self.key, &parts))
        });
        if found.is_some_and(|(user, login)| user.has_passed(&login)) {
            return Login::Admitted;
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Login::Busy;
        }
        let is_right = self.check_in_turn(found, password);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if is_right {
            Login::Admitted
        } else {
            Login::Refused
        }
    }

    fn check_in_turn(&self, found: Option<(&User, Key)>, password: &[u8]) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((user, login)) = found else {
            waste(password, self.most_cost);
            return false;
        };
        let is_right = bcrypt::verify(password, &user.hash).unwrap_or(false);
        if is_right {
            user.pass(login);
        } else {
            // 2^c + 2^c + 2^(c+1) + … + 2^(m-1) = 2^m
            (user.cost..self.most_cost).for_each(|cost| waste(password, cost));
        }
        is_right
    }
}

impl User {
    fn has_passed(&self, login: &Key) -> bool {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.is_some_and(|it| bool::from(it.ct_eq(login)))
    }

    fn pass(&self, login: Key) {
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner) = Some(login);
    }
}

/// The time of a check.
fn waste(password: &[u8], cost: u32) {
    let mut bytes: Vec<u8> = password.iter().copied().take(71).collect();
    bytes.push(0);
    std::hint::black_box(bcrypt::bcrypt(cost, [0; 16], &bytes));
}

/// The digest of parts, each with its length before it: where one ends and the next begins counts.
fn digest(key: &Key, parts: &[&[u8]]) -> Key {
    let mut hash = Sha256::new();
    hash.update(key);
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn users(costs: &[(&str, u32)]) -> Users {
        let hashes = costs.iter().map(|(name, cost)| {
            let hash = bcrypt::hash(format!("{name}'s"), *cost).expect("a hash");
            ((*name).to_owned(), hash)
        });
        Users::new(&hashes.collect()).expect("users")
    }

    #[test]
    fn the_right_password_is_admitted_and_remembered() {
        let users = users(&[("alice", 4), ("bob", 5)]);
        for _ in 0..2 {
            assert_eq!(users.check("alice", b"alice's"), Login::Admitted);
            assert_eq!(users.check("bob", b"bob's"), Login::Admitted);
            for (name, password) in [
                ("alice", &b"bob's"[..]),
                ("bob", b"alice's"),
                ("alice", b""),
                ("", b"alice's"),
                ("Alice", b"alice's"),
                ("alice\0", b"alice's"),
                ("alicealice's", b""),
                ("mallory", b"alice's"),
            ] {
                assert_eq!(
                    users.check(name, password),
                    Login::Refused,
                    "{name} {password:?}"
                );
            }
        }
        let kept = users
            .list
            .iter()
            .filter(|it| it.passed.lock().unwrap().is_some());
        assert_eq!(kept.count(), 2, "one login of each user, none of others");
    }

    #[test]
    fn parts_of_a_login_do_not_run_into_each_other() {
        let key = Key::default();
        assert_ne!(digest(&key, &[b"ab", b"c"]), digest(&key, &[b"a", b"bc"]));
        assert_ne!(digest(&key, &[b"a"]), digest(&[1; 32], &[b"a"]));
    }

    /// CPU time of this thread, which others on the machine do not lengthen by much.
    fn cpu_time(action: impl FnOnce()) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        let now = || {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let before = now();
        action();
        now().checked_sub(before).unwrap_or_default()
    }

    #[test]
    fn a_refusal_takes_the_same_time_for_every_name() {
        let users = users(&[("cheap", 4), ("dear", 9)]);
        let median = |name: &str| {
            let mut times: Vec<_> = (0..7)
                .map(|_| cpu_time(|| assert_eq!(users.check(name, b"wrong"), Login::Refused)))
                .collect();
            times.sort();
            times[3].as_secs_f64()
        };
        let (cheap, dear, nobody) = (median("cheap"), median("dear"), median("nobody"));
        for time in [cheap, dear] {
            // Without the rule the cheap one takes a thirty-second of it.
            let ratio = time / nobody;
            assert!((0.5..2.0).contains(&ratio), "{cheap} {dear} {nobody}");
        }
    }

    #[test]
    fn a_crowd_of_wrong_passwords_keeps_no_known_login_out() {
        let users = users(&[("alice", 4)]);
        assert_eq!(users.check("alice", b"alice's"), Login::Admitted);
        let (sender, outcomes) = std::sync::mpsc::channel();
        let next = || outcomes.recv_timeout(Duration::from_secs(20));
        std::thread::scope(|scope| {
            let turn = users.turn.lock().unwrap();
            for at in 0..MOST_WAITING + 2 {
                let (sender, users) = (sender.clone(), &users);
                let name = if at % 2 == 0 { "alice" } else { "mallory" };
                scope.spawn(move || sender.send(users.check(name, b"wrong")));
            }
            for _ in 0..2 {
                assert_eq!(next(), Ok(Login::Busy));
            }
            let (known, users) = (sender.clone(), &users);
            scope.spawn(move || known.send(users.check("alice", b"alice's")));
            assert_eq!(next(), Ok(Login::Admitted));
            drop(turn);
            for _ in 0..MOST_WAITING {
                assert_eq!(next(), Ok(Login::Refused));
            }
        });
        assert_eq!(
            users.check("alice", b"wrong"),
            Login::Refused,
            "a free turn"
        );
    }
}
