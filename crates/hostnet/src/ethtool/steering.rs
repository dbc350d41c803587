//! Steering for a time: what it changes it puts back.

use std::fmt;

use super::flow;
use super::ioctl::{Driver, Kernel};
use super::rss::{self, Rss};
use super::rule::{FlowRule, Spec};
use crate::error::{Context as _, Error, ErrorKind, Result};

/// Changes to the RSS table, the RSS key and the flow rules of a device, undone when it is dropped.
///
/// Each is undone only if it is still as this made it: another program's later change stays. A table
/// that the kernel had filled by itself returns to its care, so that it follows the number of queues
/// again. It works in the network namespace that it was opened in, wherever it is dropped.
///
/// A program that is killed (`kill -9`) undoes nothing, as the kernel ties these settings to no
/// process. Then `ethtool -X DEVICE default`, or [`reset_rss`](super::reset_rss), fills the table anew;
/// `ethtool -n DEVICE` lists the rules left, and `ethtool -N DEVICE delete N` deletes one.
///
/// ```no_run
/// use hostnet::ethtool::{self, Steering};
///
/// let mut steering = Steering::open("eth0")?;
/// if let Some(rss) = ethtool::rss("eth0")? {
///     steering.set_table(&rss.spread(&[1]))?;
/// }
/// // All packets arrive at queue 1 here.
/// steering.restore()?;
/// # Ok::<(), hostnet::Error>(())
/// ```
#[must_use = "it undoes its changes when it is dropped"]
pub struct Steering {
    driver: Box<dyn Driver>,
    table: Option<Change<Vec<u32>>>,
    key: Option<Change<Vec<u8>>>,
    /// The rules, as the driver gave them back.
    rules: Vec<Spec>,
}

/// A setting before the first change, and after the last one.
struct Change<T> {
    before: T,
    /// Whether the kernel had chosen it.
    was_default: bool,
    ours: T,
}

impl Steering {
    /// No change yet to `device`, a device of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if that is no name of a device. Whether there is such a device is
    /// seen with the first change.
    pub fn open(device: &str) -> Result<Self> {
        Ok(Self::with(Box::new(Kernel::open(device)?)))
    }

    fn with(driver: Box<dyn Driver>) -> Self {
        Self {
            driver,
            table: None,
            key: None,
            rules: Vec::new(),
        }
    }

    /// Replaces the RSS table.
    ///
    /// # Errors
    ///
    /// Those of [`set_rss_table`](super::set_rss_table).
    pub fn set_table(&mut self, table: &[u32]) -> Result<()> {
        let before = rss::write_table(&*self.driver, table)?;
        let was_default = before.is_default();
        Change::note(&mut self.table, before.table, was_default, table.to_vec());
        Ok(())
    }

    /// Replaces the RSS key.
    ///
    /// # Errors
    ///
    /// Those of [`set_rss_key`](super::set_rss_key).
    pub fn set_key(&mut self, key: &[u8]) -> Result<()> {
        let before = rss::write_key(&*self.driver, key)?;
        Change::note(&mut self.key, before.key, false, key.to_vec());
        Ok(())
    }

    /// Adds a flow rule; returns its location.
    ///
    /// # Errors
    ///
    /// Those of [`insert_flow_rule`](super::insert_flow_rule).
    pub fn insert_rule(&mut self, rule: &FlowRule) -> Result<u32> {
        let location = flow::insert(&*self.driver, rule)?;
        match flow::read(&*self.driver, location) {
            Ok(installed) => self.rules.push(installed),
            // A rule that cannot be recognized later must not stay.
            Err(error) => {
                let _ = flow::delete(&*self.driver, location);
                let step = format!("cannot read back the flow rule {location}");
                return Err(error.context(step).context(self.driver.device()));
            }
        }
        Ok(location)
    }

    /// Undoes all changes now, as drop does, and reports those that could not be undone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if another program has replaced a setting, which stays as it is;
    /// otherwise the kernel's refusal. The first error of several; the other changes are undone.
    pub fn restore(mut self) -> Result<()> {
        self.undo()
    }

    fn undo(&mut self) -> Result<()> {
        let driver = &*self.driver;
        let rules = std::mem::take(&mut self.rules);
        let rules = rules.iter().rev().map(|rule| delete_ours(driver, rule));
        let table = self
            .table
            .take()
            .map(|change| restore_table(driver, &change));
        let key = self.key.take().map(|change| restore_key(driver, &change));
        let undone: Vec<_> = rules.chain(table).chain(key).collect();
        undone.into_iter().find(is_failure).unwrap_or(Ok(()))
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        // `restore` is there for those who want to know.
        let _ = self.undo();
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locations: Vec<_> = self.rules.iter().map(Spec::location).collect();
        f.debug_struct("Steering")
            .field("device", &self.driver.device())
            .field("table", &self.table.is_some())
            .field("key", &self.key.is_some())
            .field("rules", &locations)
            .finish()
    }
}

impl<T> Change<T> {
    fn note(change: &mut Option<Self>, before: T, was_default: bool, ours: T) {
        match change {
            Some(change) => change.ours = ours,
            None => {
                *change = Some(Self {
                    before,
                    was_default,
                    ours,
                });
            }
        }
    }
}

fn is_failure(undone: &Result<()>) -> bool {
    undone.as_ref().is_err_and(|error| !is_gone(error))
}

/// A device that is gone has taken its settings with it.
fn is_gone(error: &Error) -> bool {
    error.errno() == Some(libc::ENODEV)
}

fn restore_table(driver: &dyn Driver, change: &Change<Vec<u32>>) -> Result<()> {
    if read(driver)?.is_none_or(|now| now.table != change.ours) {
        return Err(changed(driver, "RSS table"));
    }
    if change.was_default {
        return rss::reset(driver);
    }
    rss::write_table(driver, &change.before).map(drop)
}

fn restore_key(driver: &dyn Driver, change: &Change<Vec<u8>>) -> Result<()> {
    if read(driver)?.is_none_or(|now| now.key != change.ours) {
        return Err(changed(driver, "RSS key"));
    }
    rss::write_key(driver, &change.before).map(drop)
}

fn read(driver: &dyn Driver) -> Result<Option<Rss>> {
    let state = rss::read(driver);
    let state =
        state.with_context(|| format!("cannot read the RSS table of {}", driver.device()))?;
    Ok(state.map(|state| state.rss))
}

fn delete_ours(driver: &dyn Driver, ours: &Spec) -> Result<()> {
    let location = ours.location();
    match flow::read(driver, location) {
        Ok(now) if now == *ours => flow::delete(driver, location),
        Err(error) if is_gone(&error) => Err(error),
        // Drivers differ in the error for an empty location.
        Ok(_) | Err(_) => Err(changed(driver, &format!("flow rule {location}"))),
    }
}

fn changed(driver: &dyn Driver, setting: &str) -> Error {
    let device = driver.device();
    Error::new(
        ErrorKind::Changed,
        format!("the {setting} of {device} is another program's by now: it stays as it is"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::card::Card;
    use super::super::rule::{Addresses, Masked, Transport};
    use super::*;

    const RULE: FlowRule = FlowRule {
        transport: Transport::Udp,
        addresses: Addresses::ANY_V4,
        source_port: Masked::ANY_PORT,
        destination_port: Masked {
            value: 4242,
            mask: 0xffff,
        },
        ring: 1,
    };

    fn steer(card: &Card) -> Result<Steering> {
        let mut steering = Steering::with(Box::new(card.clone()));
        steering.set_table(&[1; 8])?;
        steering.set_table(&[2; 8])?;
        steering.set_key(&[7; 40])?;
        steering.insert_rule(&RULE)?;
        steering.insert_rule(&RULE)?;
        Ok(steering)
    }

    #[test]
    fn a_drop_undoes_all() -> Result<()> {
        let card = Card::new();
        let table = vec![3, 3, 3, 3, 0, 0, 0, 0];
        card.state().table.clone_from(&table);
        card.state().table_is_default = false;
        let steering = steer(&card)?;
        assert_eq!(card.state().table, [2; 8]);
        assert_eq!(card.state().rules.len(), 2);
        drop(steering);
        assert_eq!(card.state().table, table);
        assert!(!card.state().table_is_default);
        assert_eq!(card.state().key, (0..40).collect::<Vec<u8>>());
        assert!(card.state().rules.is_empty());
        Ok(())
    }

    #[test]
    fn a_table_of_the_kernel_is_the_kernels_again() -> Result<()> {
        let card = Card::new();
        let steering = steer(&card)?;
        assert!(!card.state().table_is_default);
        steering.restore()?;
        assert!(card.state().table_is_default);
        Ok(())
    }

    #[test]
    fn a_table_of_another_program_stays_and_the_rest_is_undone() -> Result<()> {
        let card = Card::new();
        let steering = steer(&card)?;
        card.state().table = vec![3; 8];
        let error = steering.restore().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert_eq!(
            error.to_string(),
            "the RSS table of eth0 is another program's by now: it stays as it is"
        );
        assert_eq!(card.state().table, [3; 8]);
        assert_eq!(card.state().key, (0..40).collect::<Vec<u8>>());
        assert!(card.state().rules.is_empty());
        Ok(())
    }

    #[test]
    fn a_rule_of_another_program_stays() -> Result<()> {
        let card = Card::new();
        let steering = steer(&card)?;
        let other = FlowRule { ring: 3, ..RULE };
        flow::delete(&card, 15)?;
        assert_eq!(flow::insert(&card, &other)?, 15);
        let error = steering.restore().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert_eq!(card.state().rules.keys().collect::<Vec<_>>(), [&15]);
        Ok(())
    }

    #[test]
    fn a_device_that_is_gone_needs_no_undo() -> Result<()> {
        let mut steering = Steering::open("lo")?;
        steering.driver = Box::new(Kernel::open("hostnet-none")?);
        steering.table = Some(Change {
            before: vec![0],
            was_default: false,
            ours: vec![1],
        });
        steering.restore()
    }

    #[test]
    fn a_guard_crosses_threads() {
        fn check<T: Send + Sync>() {}
        check::<Steering>();
    }
}
