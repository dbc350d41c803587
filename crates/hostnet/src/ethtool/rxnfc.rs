//! `struct ethtool_rxnfc`: its layout, and the number of queues, which RSS and flow rules need.

use std::mem::offset_of;

use super::ioctl::{Driver, Request, ask};
use crate::error::{Error, Result};

const GET_RINGS: u32 = 0x2d;

/// `struct ethtool_rxnfc`. Its array of locations begins before its end.
#[repr(C)]
pub(super) struct RxNfc {
    cmd: u32,
    flow_type: u32,
    data: u64,
    pub(super) fs: RxFlowSpec,
    pub(super) rule_cnt: u32,
    pub(super) rule_locs: [u32; 0],
}

/// `struct ethtool_rx_flow_spec`.
#[repr(C)]
pub(super) struct RxFlowSpec {
    pub(super) flow_type: u32,
    pub(super) h_u: [u8; FLOW_UNION],
    pub(super) h_ext: [u8; 20],
    pub(super) m_u: [u8; FLOW_UNION],
    pub(super) m_ext: [u8; 20],
    pub(super) ring_cookie: u64,
    pub(super) location: u32,
}

/// The size of `union ethtool_flow_union`.
const FLOW_UNION: usize = 52;
pub(super) const SPEC: usize = size_of::<RxFlowSpec>();
pub(super) const WORD: usize = size_of::<u32>();

// As a C compiler has them; 32-bit x86 alone aligns u64 otherwise, and there so does Rust.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<RxNfc>() == 192 && SPEC == 168);
    assert!(offset_of!(RxNfc, flow_type) == 4);
    assert!(offset_of!(RxNfc, data) == 8);
    assert!(offset_of!(RxNfc, fs) == 16);
    assert!(offset_of!(RxNfc, fs.h_u) == 20);
    assert!(offset_of!(RxNfc, fs.h_ext) == 72);
    assert!(offset_of!(RxNfc, fs.m_u) == 92);
    assert!(offset_of!(RxNfc, fs.m_ext) == 144);
    assert!(offset_of!(RxNfc, fs.ring_cookie) == 168);
    assert!(offset_of!(RxNfc, fs.location) == 176);
    assert!(offset_of!(RxNfc, rule_cnt) == 184);
    assert!(offset_of!(RxNfc, rule_locs) == 188);
};

/// The number of queues that rules and the RSS table can name; `None` if the driver does not say.
pub(super) fn rings(driver: &dyn Driver) -> Result<Option<u32>> {
    let mut request = command(GET_RINGS)?;
    let known = ask(driver, &mut request)?;
    Ok(known.then(|| u32::try_from(data(&request)).unwrap_or(u32::MAX)))
}

/// Refuses a queue that the device does not have.
pub(super) fn check_ring(device: &str, ring: u32, rings: u32) -> Result<()> {
    if ring < rings {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{device} has no queue {ring}, its {rings} count from 0: `ethtool -L {device} combined N` \
         makes them N"
    )))
}

/// `struct ethtool_rxnfc` with a command.
pub(super) fn command(command: u32) -> Result<Request> {
    Request::new(command, size_of::<RxNfc>() / WORD)
}

/// The member `data`.
pub(super) fn data(request: &Request) -> u64 {
    u64::from_ne_bytes(array(request.bytes(), offset_of!(RxNfc, data)))
}

pub(super) fn array<const LENGTH: usize>(bytes: &[u8], start: usize) -> [u8; LENGTH] {
    let mut array = [0; LENGTH];
    array.copy_from_slice(&bytes[start..start + LENGTH]);
    array
}
