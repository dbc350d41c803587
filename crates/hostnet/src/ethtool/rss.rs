//! RSS: the table that spreads received packets over queues by a hash (`ethtool -x`, `-X`;
//! Documentation/networking/scaling.rst).

use rustix::io::Errno;

use super::ioctl::{Driver, Kernel, Request, ask};
use super::rxnfc::{check_ring, rings};
use crate::error::{Context as _, Error, Result};
use crate::privilege::Capability;

const GET_RSS: u32 = 0x46;
const SET_RSS: u32 = 0x47;
/// Words of `struct ethtool_rxfh`; the table begins at [`TABLE`], the key behind the table.
const TABLE_SIZE: usize = 2;
const KEY_SIZE: usize = 3;
const TABLE: usize = 6;
/// The byte of the hash's input transformation, which older kernels keep at zero (`input_xfrm`,
/// Linux 6.8). A change that leaves it out would reset it.
const TRANSFORMATION: usize = 17;
/// The table stays (`ETH_RXFH_INDIR_NO_CHANGE`).
const KEEP_TABLE: u32 = u32::MAX;

/// The spreading of received packets over the queues of a device: the low bits of a packet's hash
/// choose an entry of the table, and the entry the queue.
///
/// ```
/// use hostnet::ethtool::Rss;
///
/// let rss = Rss { table: vec![0, 1, 0, 1], rings: 4, key: vec![] };
/// assert_eq!(rss.targets(), [0, 1]);
/// assert_eq!(rss.spread(&[2, 3]), [2, 3, 2, 3]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rss {
    /// The queue of each hash. Its length is the driver's choice, often 128.
    pub table: Vec<u32>,
    /// The queues that an entry can name, counted from 0 to this number.
    pub rings: u32,
    /// The key of the hash, 40 bytes with most cards; empty if the driver hides it.
    pub key: Vec<u8>,
}

impl Rss {
    /// The queues that the table names, in ascending order. No other receives a packet by RSS.
    pub fn targets(&self) -> Vec<u32> {
        let mut targets = self.table.clone();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// A table of this length over these queues, each as often as the others; without queues, this
    /// table.
    pub fn spread(&self, queues: &[u32]) -> Vec<u32> {
        if queues.is_empty() {
            return self.table.clone();
        }
        queues
            .iter()
            .copied()
            .cycle()
            .take(self.table.len())
            .collect()
    }

    /// Whether the kernel would fill the table so by itself (`ethtool_rxfh_indir_default`).
    pub(super) fn is_default(&self) -> bool {
        self.rings > 0
            && (0..self.rings)
                .cycle()
                .zip(&self.table)
                .all(|(a, b)| a == *b)
    }
}

/// The RSS table of `device`; `None` if its driver has none.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// use hostnet::ethtool;
///
/// if let Some(rss) = ethtool::rss("eth0")? {
///     println!("queues {:?} of {} receive by RSS", rss.targets(), rss.rings);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
pub fn rss(device: &str) -> Result<Option<Rss>> {
    let state = Kernel::open(device).and_then(|driver| read(&driver));
    let state = state.with_context(|| format!("cannot read the RSS table of {device}"))?;
    Ok(state.map(|state| state.rss))
}

/// Replaces the RSS table of `device`, for good: [`Steering`](super::Steering) puts it back. Needs
/// `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if the driver has no table, [`ErrorKind::InvalidInput`] for a table of
/// another length or with a queue that the device does not have, [`ErrorKind::PermissionDenied`]
/// without the capability, [`ErrorKind::NotFound`] if there is no such device.
///
/// ```no_run
/// use hostnet::ethtool;
///
/// if let Some(rss) = ethtool::rss("eth0")? {
///     ethtool::set_rss_table("eth0", &rss.spread(&[1]))?;
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
/// [`ErrorKind::NotFound`]: crate::ErrorKind::NotFound
/// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
/// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
pub fn set_rss_table(device: &str, table: &[u32]) -> Result<()> {
    write_table(&Kernel::open(device)?, table).map(drop)
}

/// Replaces the key of the RSS hash of `device`, for good. Two bytes repeated, such as `6d 5a`, send
/// both directions of a connection to one queue. Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// Those of [`set_rss_table`]; [`ErrorKind::InvalidInput`] is a key of another length.
///
/// ```no_run
/// hostnet::ethtool::set_rss_key("eth0", &[0x6d, 0x5a].repeat(20))?;
/// # Ok::<(), hostnet::Error>(())
/// ```
///
/// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
pub fn set_rss_key(device: &str, key: &[u8]) -> Result<()> {
    write_key(&Kernel::open(device)?, key).map(drop)
}

/// Gives `device` the kernel's own RSS table, over all queues in turn, as `ethtool -X DEVICE default`
/// does: the cure for a table that a killed program left behind. Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// Those of [`set_rss_table`].
///
/// ```no_run
/// hostnet::ethtool::reset_rss("eth0")?;
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn reset_rss(device: &str) -> Result<()> {
    reset(&Kernel::open(device)?)
}

/// The settings of one device.
pub(super) struct State {
    pub(super) rss: Rss,
    transformation: u8,
}

pub(super) fn read(driver: &dyn Driver) -> Result<Option<State>> {
    let mut sizes = Request::new(GET_RSS, TABLE)?;
    if !ask(driver, &mut sizes)? || sizes[TABLE_SIZE] == 0 {
        return Ok(None);
    }
    let Some(rings) = rings(driver)? else {
        return Ok(None);
    };
    let (entries, key) = (sizes[TABLE_SIZE] as usize, sizes[KEY_SIZE] as usize);
    let mut values = Request::new(GET_RSS, TABLE + entries + key.div_ceil(size_of::<u32>()))?;
    values[TABLE_SIZE] = sizes[TABLE_SIZE];
    values[KEY_SIZE] = sizes[KEY_SIZE];
    driver.call(&mut values)?;
    let key_start = (TABLE + entries) * size_of::<u32>();
    Ok(Some(State {
        rss: Rss {
            table: values[TABLE..TABLE + entries].to_vec(),
            rings,
            key: values.bytes()[key_start..key_start + key].to_vec(),
        },
        transformation: values.bytes()[TRANSFORMATION],
    }))
}

/// Sets the table; the settings before.
pub(super) fn write_table(driver: &dyn Driver, table: &[u32]) -> Result<Rss> {
    change(driver, "RSS table", |before| {
        check_table(driver.device(), &before.rss, table)?;
        table_request(before, table)
    })
}

/// Sets the key; the settings before.
pub(super) fn write_key(driver: &dyn Driver, key: &[u8]) -> Result<Rss> {
    change(driver, "RSS key", |before| {
        check_key(&before.rss, key)?;
        key_request(before, key)
    })
}

pub(super) fn reset(driver: &dyn Driver) -> Result<()> {
    change(driver, "RSS table", |before| table_request(before, &[])).map(drop)
}

fn change(
    driver: &dyn Driver,
    setting: &str,
    request: impl FnOnce(&State) -> Result<Request>,
) -> Result<Rss> {
    let step = || {
        let before = read(driver)?.ok_or_else(no_table)?;
        driver.call(&mut request(&before)?)?;
        Ok::<_, Error>(before.rss)
    };
    step()
        .with_context(|| format!("cannot set the {setting} of {}", driver.device()))
        .needs(Capability::NetAdmin)
}

fn no_table() -> Error {
    Error::os(
        Errno::OPNOTSUPP,
        "its driver has no RSS table: open a socket on every queue, or leave the device one queue",
    )
}

fn check_key(rss: &Rss, key: &[u8]) -> Result<()> {
    if rss.key.is_empty() {
        return Err(Error::os(
            Errno::OPNOTSUPP,
            "its driver has a table, and no key",
        ));
    }
    if key.len() != rss.key.len() {
        return Err(Error::invalid(format!(
            "a key of {} bytes does not fit, the driver has one of {}",
            key.len(),
            rss.key.len()
        )));
    }
    Ok(())
}

fn check_table(device: &str, rss: &Rss, table: &[u32]) -> Result<()> {
    if table.len() != rss.table.len() {
        return Err(Error::invalid(format!(
            "a table of {} entries does not fit, the driver has one of {}",
            table.len(),
            rss.table.len()
        )));
    }
    for ring in table {
        check_ring(device, *ring, rss.rings)?;
    }
    Ok(())
}

/// `ETHTOOL_SRSSH` with this table; with none, the kernel fills it.
fn table_request(before: &State, table: &[u32]) -> Result<Request> {
    let mut request = Request::new(SET_RSS, TABLE + table.len())?;
    request[TABLE_SIZE] = table.len() as u32;
    request[TABLE..].copy_from_slice(table);
    request.bytes_mut()[TRANSFORMATION] = before.transformation;
    Ok(request)
}

fn key_request(before: &State, key: &[u8]) -> Result<Request> {
    let mut request = Request::new(SET_RSS, TABLE + key.len().div_ceil(size_of::<u32>()))?;
    request[TABLE_SIZE] = KEEP_TABLE;
    request[KEY_SIZE] = key.len() as u32;
    let bytes = request.bytes_mut();
    let start = TABLE * size_of::<u32>();
    bytes[start..start + key.len()].copy_from_slice(key);
    bytes[TRANSFORMATION] = before.transformation;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::super::card::{Card, recorded};
    use super::*;
    use crate::error::ErrorKind;

    // The card's numbers are little-endian, as those of the machine that made the recordings.
    #[cfg(target_endian = "little")]
    #[test]
    fn requests_are_those_of_ethtool() -> Result<()> {
        let card = Card::new();
        let sent = |command: &str| {
            assert_eq!(card.state().changed, recorded(command), "{command}");
        };
        write_table(&card, &[1; 8])?;
        sent("ethtool -X eth0 weight 0 1 0 0");
        write_table(&card, &[0, 0, 2, 2, 2, 2, 2, 2])?;
        sent("ethtool -X eth0 weight 1 0 3 0");
        reset(&card)?;
        sent("ethtool -X eth0 default");
        write_key(&card, &[0x6d, 0x5a].repeat(20))?;
        let hexadecimal = ["6d:5a"; 20].join(":");
        sent(&format!("ethtool -X eth0 hkey {hexadecimal}"));
        Ok(())
    }

    #[test]
    fn table_and_key_are_read() -> Result<()> {
        let rss = read(&Card::new())?.expect("the card has a table").rss;
        assert_eq!(rss.table, [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(rss.key, (0..40).collect::<Vec<u8>>());
        assert_eq!(rss.rings, 4);
        assert!(rss.is_default());
        Ok(())
    }

    #[test]
    fn a_change_keeps_the_transformation() -> Result<()> {
        let card = Card::new();
        card.state().transformation = 1;
        write_table(&card, &[1; 8])?;
        write_key(&card, &[1; 40])?;
        reset(&card)?;
        assert_eq!(card.state().transformation, 1);
        Ok(())
    }

    #[test]
    fn wrong_tables_and_keys_are_refused_before_the_kernel() {
        let card = Card::new();
        let refused = [
            (
                write_table(&card, &[0; 7]),
                "cannot set the RSS table of eth0: a table of 7 entries does not fit, the driver has \
                 one of 8",
            ),
            (
                write_table(&card, &[4; 8]),
                "cannot set the RSS table of eth0: eth0 has no queue 4, its 4 count from 0: `ethtool -L \
                 eth0 combined N` makes them N",
            ),
            (
                write_key(&card, &[1; 4]),
                "cannot set the RSS key of eth0: a key of 4 bytes does not fit, the driver has one of 40",
            ),
        ];
        for (result, text) in refused {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), text);
        }
        assert!(card.state().changed.is_empty());
    }

    #[test]
    fn a_driver_without_a_key_says_so() {
        let card = Card::new();
        card.state().key.clear();
        let error = write_key(&card, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("no key"), "{error}");
    }

    #[test]
    fn a_spread_table_has_each_queue_as_often() {
        let rss = Rss {
            table: vec![3; 5],
            rings: 4,
            key: Vec::new(),
        };
        assert_eq!(rss.spread(&[2]), [2; 5]);
        assert_eq!(rss.spread(&[0, 2]), [0, 2, 0, 2, 0]);
        assert_eq!(rss.spread(&[]), rss.table);
        assert_eq!(rss.targets(), [3]);
        assert!(!rss.is_default());
    }
}
