//! ioctl(2) `SIOCETHTOOL` and `SIOCGIFINDEX`, of a caller in another namespace than its device.

use super::session::Session;
use super::sys::{self, ETHTOOL_GCHANNELS, IFNAMSIZ, IFREQ_LEN, SIOCETHTOOL};
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::io::Errno;

/// The number of the ioctl that returns a device's index.
pub(super) const SIOCGIFINDEX: i32 = 0x8933;

/// In the caller's own namespace all is left to the kernel, which lets it read channels, and asks for
/// `CAP_NET_ADMIN` to change them.
pub(super) fn handle(session: &Session, call: &Call<'_>) -> Result<Answer, Errno> {
    let request = call.int(1);
    if !matches!(request, SIOCETHTOOL | SIOCGIFINDEX) {
        return Ok(Answer::Continue);
    }
    let target = call.target()?;
    let place = session.place(target)?;
    if !session.is_elsewhere(target, &place)? {
        return Ok(Answer::Continue);
    }
    let address = call.word(2);
    let mut ifreq = [0; IFREQ_LEN];
    target.read(address, &mut ifreq)?;
    let [name @ .., _] = ifreq.first_chunk::<IFNAMSIZ>().ok_or(Errno::INVAL)?;
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    let device = name
        .get(..end)
        .and_then(|name| std::str::from_utf8(name).ok());
    let device = device.ok_or(Errno::NODEV)?;
    let Ok(index) = place.index(device) else {
        return Ok(Answer::Continue);
    };
    if session.grants(&place, index).is_empty() {
        return Ok(Answer::Continue);
    }
    if request == SIOCGIFINDEX {
        call.check_alive()?;
        target.write(address.wrapping_add(IFNAMSIZ as u64), &index.to_ne_bytes())?;
        return Ok(Answer::Value(0));
    }
    let [.., d0, d1, d2, d3, d4, d5, d6, d7] = *ifreq.first_chunk::<24>().ok_or(Errno::INVAL)?;
    let data = u64::from_ne_bytes([d0, d1, d2, d3, d4, d5, d6, d7]);
    let mut command = [0; 4];
    target.read(data, &mut command)?;
    if u32::from_ne_bytes(command) != ETHTOOL_GCHANNELS {
        return Err(Errno::PERM);
    }
    let mut padded = [0; IFNAMSIZ];
    for (to, from) in padded.iter_mut().zip(device.bytes()) {
        *to = from;
    }
    let channels = sys::channels(place.socket(), padded)?;
    call.check_alive()?;
    target.write(data, &channels)?;
    Ok(Answer::Value(0))
}
