//! Flow rules: received packets that match go to a queue, before RSS has a say (`ethtool -n`, `-N`).

use std::mem::offset_of;

use rustix::io::Errno;

use super::ioctl::{Driver, Kernel, Request, ask};
use super::rule::{FlowRule, InstalledRule, Spec};
use super::rxnfc::{self, RxNfc, SPEC, WORD, check_ring, command, data};
use super::{features, rss};
use crate::error::{Context as _, Error, Result};
use crate::privilege::Capability;

const GET_RULE_COUNT: u32 = 0x2e;
const GET_RULE: u32 = 0x2f;
const GET_LOCATIONS: u32 = 0x30;
const DELETE_RULE: u32 = 0x31;
const INSERT_RULE: u32 = 0x32;
/// The driver chooses locations itself (`RX_CLS_LOC_SPECIAL`), and is asked to (`RX_CLS_LOC_ANY`).
const DRIVER_CHOOSES: u64 = 0x8000_0000;
const ANY_LOCATION: u32 = u32::MAX;

/// The flow rules of `device`; `None` if its driver knows none.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// for installed in hostnet::ethtool::flow_rules("eth0")?.unwrap_or_default() {
///     println!("{}: {:?}", installed.location, installed.rule);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn flow_rules(device: &str) -> Result<Option<Vec<InstalledRule>>> {
    let list = || {
        let driver = Kernel::open(device)?;
        let Some(Table { locations, .. }) = table(&driver)? else {
            return Ok(None);
        };
        let rules = locations.into_iter().map(|location| {
            Ok(InstalledRule {
                location,
                rule: read(&driver, location)?.rule(),
            })
        });
        rules.collect::<Result<_>>().map(Some)
    };
    list().with_context(|| format!("cannot read the flow rules of {device}"))
}

/// Adds a flow rule to `device`, for good, at a location of the driver's choice or else the last free
/// one; returns that location. [`Steering`](super::Steering) deletes its rules again. Needs
/// `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if the card has no flow rules, or they are switched off (the message
/// names the command that switches them on); [`ErrorKind::InvalidInput`] for a queue that the device
/// does not have; [`ErrorKind::PermissionDenied`] without the capability; [`ErrorKind::NotFound`] if
/// there is no such device. [`ErrorKind::Os`] with `EINVAL` is a match that the card cannot do, and
/// with `ENOSPC` a full table.
///
/// ```no_run
/// use hostnet::ethtool::{self, Addresses, FlowRule, Masked, Transport};
///
/// let rule = FlowRule {
///     transport: Transport::Udp,
///     addresses: Addresses::ANY_V4,
///     source_port: Masked::ANY_PORT,
///     destination_port: 4242.into(),
///     ring: 1,
/// };
/// let location = ethtool::insert_flow_rule("eth0", &rule)?;
/// ethtool::delete_flow_rule("eth0", location)?;
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::Os`]: crate::ErrorKind::Os
/// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
/// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
pub fn insert_flow_rule(device: &str, rule: &FlowRule) -> Result<u32> {
    insert(&Kernel::open(device)?, rule)
}

/// Deletes the flow rule at this location of `device`. Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if the card has no flow rules, [`ErrorKind::PermissionDenied`] without
/// the capability, [`ErrorKind::NotFound`] if there is no such device; an empty location is
/// [`ErrorKind::NotFound`] or, with some drivers, [`ErrorKind::Os`] with `EINVAL`.
///
/// ```no_run
/// hostnet::ethtool::delete_flow_rule("eth0", 15)?;
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::Os`]: crate::ErrorKind::Os
/// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
/// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
pub fn delete_flow_rule(device: &str, location: u32) -> Result<()> {
    delete(&Kernel::open(device)?, location)
}

pub(super) fn insert(driver: &dyn Driver, rule: &FlowRule) -> Result<u32> {
    let device = driver.device();
    let step = || {
        if let Some(rings) = rxnfc::rings(driver)? {
            check_ring(device, rule.ring, rings)?;
        }
        let table = table(driver)?.ok_or_else(|| Error::os(Errno::OPNOTSUPP, ""))?;
        let mut request = insertion(&Spec::new(rule, table.free_location()?))?;
        driver.call(&mut request)?;
        Ok(Spec::of(&request).location())
    };
    let inserted = step().map_err(|error| explain(driver, error));
    inserted
        .with_context(|| format!("cannot add a flow rule to {device}"))
        .needs(Capability::NetAdmin)
}

pub(super) fn delete(driver: &dyn Driver, location: u32) -> Result<()> {
    let step = || {
        let mut request = command(DELETE_RULE)?;
        request[offset_of!(RxNfc, fs.location) / WORD] = location;
        driver.call(&mut request)
    };
    step()
        .with_context(|| {
            let device = driver.device();
            format!("cannot delete the flow rule {location} of {device}")
        })
        .needs(Capability::NetAdmin)
}

/// The rule at a location, as the driver gives it.
pub(super) fn read(driver: &dyn Driver, location: u32) -> Result<Spec> {
    let mut request = command(GET_RULE)?;
    request[offset_of!(RxNfc, fs.location) / WORD] = location;
    driver.call(&mut request)?;
    Ok(Spec::of(&request))
}

/// Adds the cure to a refused rule.
fn explain(driver: &dyn Driver, error: Error) -> Error {
    let device = driver.device();
    match error.errno() {
        Some(libc::EOPNOTSUPP | libc::EINVAL) if is_switched_off(driver) => error.cure(&format!(
            "flow rules are switched off: `ethtool -K {device} ntuple on`"
        )),
        Some(libc::EOPNOTSUPP) if has_rss(driver) => error.cure(&format!(
            "its driver has none for this card: RSS can send all packets to one queue, \
             `ethtool -X {device} equal 1` to queue 0"
        )),
        Some(libc::EOPNOTSUPP) => {
            error.cure("its driver has none for this card: open a socket on every queue")
        }
        Some(libc::EINVAL) => error.cure(&format!(
            "the card does not match by these fields or masks: most take whole addresses and ports, \
             and masks like those of the rules that `ethtool -n {device}` lists"
        )),
        Some(libc::ENOSPC) => error.cure(&format!(
            "its table is full: `ethtool -n {device}` lists the rules, `ethtool -N {device} delete \
             N` deletes one"
        )),
        _ => error,
    }
}

fn has_rss(driver: &dyn Driver) -> bool {
    rss::read(driver).is_ok_and(|state| state.is_some())
}

/// Whether flow rules could be switched on.
fn is_switched_off(driver: &dyn Driver) -> bool {
    let features = features::read(driver).unwrap_or_default();
    let ntuple = features
        .iter()
        .find(|feature| feature.name == "rx-ntuple-filter");
    ntuple.is_some_and(|ntuple| !ntuple.on && ntuple.changeable)
}

/// The driver's table of rules.
struct Table {
    locations: Vec<u32>,
    size: u32,
    driver_chooses: bool,
}

impl Table {
    /// The location for a new rule: the last free one has the lowest priority.
    fn free_location(&self) -> Result<u32> {
        if self.driver_chooses {
            return Ok(ANY_LOCATION);
        }
        (0..self.size)
            .rev()
            .find(|location| !self.locations.contains(location))
            .ok_or_else(|| Error::os(Errno::NOSPC, ""))
    }
}

fn table(driver: &dyn Driver) -> Result<Option<Table>> {
    let mut request = command(GET_RULE_COUNT)?;
    if !ask(driver, &mut request)? {
        return Ok(None);
    }
    let driver_chooses = data(&request) & DRIVER_CHOOSES != 0;
    let count = request[offset_of!(RxNfc, rule_cnt) / WORD];
    let start = offset_of!(RxNfc, rule_locs) / WORD;
    let words = (start + count as usize).max(size_of::<RxNfc>() / WORD);
    let mut request = Request::new(GET_LOCATIONS, words)?;
    request[offset_of!(RxNfc, rule_cnt) / WORD] = count;
    driver.call(&mut request)?;
    let count = count.min(request[offset_of!(RxNfc, rule_cnt) / WORD]);
    let locations = &request[start..start + count as usize];
    Ok(Some(Table {
        locations: locations.to_vec(),
        size: u32::try_from(data(&request)).unwrap_or(u32::MAX),
        driver_chooses,
    }))
}

fn insertion(spec: &Spec) -> Result<Request> {
    let mut request = command(INSERT_RULE)?;
    let start = offset_of!(RxNfc, fs);
    request.bytes_mut()[start..start + SPEC].copy_from_slice(&spec.0);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::super::card::{Card, recorded};
    use super::super::rule::rules;
    use super::*;
    use crate::error::ErrorKind;

    // The card's numbers are little-endian, as those of the machine that made the recordings.
    #[cfg(target_endian = "little")]
    #[test]
    fn requests_are_those_of_ethtool() -> Result<()> {
        let commands = [
            "udp4 src-ip 192.0.2.1 dst-ip 192.0.2.2 m 0.0.0.255 src-port 1000 dst-port 4242 action 2",
            "tcp6 src-ip 2001:db8::1 dst-port 443 m 0x00ff action 3",
            "udp6 dst-ip 2001:db8::2 action 1 loc 5",
            "tcp4 src-port 80 action 0 loc 2",
        ];
        // Any location, the last free one, and two that were given.
        let locations = [ANY_LOCATION, 15, 5, 2];
        for ((command, rule), location) in commands.into_iter().zip(rules()).zip(locations) {
            let request = insertion(&Spec::new(&rule, location))?;
            let recording = recorded(&format!("ethtool -N eth0 flow-type {command}"));
            assert_eq!(request.bytes().len(), recording.len());
            assert_eq!(request.bytes()[..4], recording[..4], "{command}");
            assert_eq!(request.bytes()[16..188], recording[16..188], "{command}");
        }
        let card = Card::new();
        insert(&card, &rules()[0])?;
        delete(&card, 15)?;
        let deletion = recorded("ethtool -N eth0 delete 9");
        let location = offset_of!(RxNfc, fs.location);
        assert_eq!(card.state().changed[..4], deletion[..4]);
        assert_eq!(deletion[location..location + 4], [9, 0, 0, 0]);
        Ok(())
    }

    #[test]
    fn rules_are_read_as_they_were_added() -> Result<()> {
        let card = Card::new();
        for (rule, location) in rules().iter().zip([15, 14, 13, 12]) {
            assert_eq!(insert(&card, rule)?, location);
            assert_eq!(read(&card, location)?.rule(), Some(*rule));
        }
        let table = table(&card)?.expect("the card has a table");
        assert_eq!(table.locations, [12, 13, 14, 15]);
        card.state().chooses_locations = true;
        assert_eq!(insert(&card, &rules()[0])?, 7);
        Ok(())
    }

    #[test]
    fn refusals_name_the_cure() {
        let refused = |prepare: &dyn Fn(&Card)| {
            let card = Card::new();
            prepare(&card);
            insert(&card, &rules()[0]).unwrap_err()
        };
        let refusal = |errno| {
            move |card: &Card| {
                card.state().refusal = Some(errno);
            }
        };
        let none = refused(&refusal(Errno::OPNOTSUPP));
        assert_eq!(none.kind(), ErrorKind::Unsupported);
        // The rest is the C library's text.
        let refusal_and_cure = "cannot add a flow rule to eth0: its driver has none for this card: RSS can send all \
                                packets to one queue, `ethtool -X eth0 equal 1` to queue 0 (EOPNOTSUPP 95: ";
        assert!(none.to_string().starts_with(refusal_and_cure), "{none}");
        let off = refused(&|card| {
            refusal(Errno::OPNOTSUPP)(card);
            card.state().ntuple = [true, false];
        });
        assert!(
            off.to_string().contains("`ethtool -K eth0 ntuple on`"),
            "{off}"
        );
        let fixed = refused(&|card| {
            refusal(Errno::OPNOTSUPP)(card);
            card.state().ntuple = [false, false];
        });
        assert_eq!(fixed.to_string(), none.to_string());
        let masks = refused(&refusal(Errno::INVAL));
        assert!(masks.to_string().contains("whole addresses"), "{masks}");
        let full = refused(&|card| {
            let rule = vec![0; SPEC / WORD];
            card.state().rules = (0..16).map(|location| (location, rule.clone())).collect();
        });
        assert_eq!(full.errno(), Some(libc::ENOSPC));
        assert!(
            full.to_string().contains("`ethtool -N eth0 delete N`"),
            "{full}"
        );
    }

    #[test]
    fn a_queue_out_of_range_is_refused_before_the_kernel() {
        let card = Card::new();
        let rule = FlowRule {
            ring: 4,
            ..rules()[0]
        };
        let error = insert(&card, &rule).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("eth0 has no queue 4"), "{error}");
        assert!(card.state().changed.is_empty());
    }
}
