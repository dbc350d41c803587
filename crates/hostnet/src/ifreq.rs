//! Device names in the structure of netdevice(7) ioctls.

use crate::error::{Error, Result};

/// The room of a name in `struct ifreq`, with the zero at its end.
pub(crate) const IFNAMSIZ: usize = 16;

/// The name for `ifr_name`. Refuses text that the kernel would cut or expand: a zero byte ends a
/// name, and `%d` stands for a number that the kernel chooses.
pub(crate) fn name(device: &str) -> Result<[u8; IFNAMSIZ]> {
    if device.is_empty() || device.len() >= IFNAMSIZ || device.contains(['\0', '%']) {
        return Err(Error::invalid(format!(
            "{device:?} is no name that an ioctl takes: it has 1 to {} bytes, without zero and '%'; `ip link show` has \
             the first name of a device with a longer one",
            IFNAMSIZ - 1
        )));
    }
    let mut name = [0; IFNAMSIZ];
    name[..device.len()].copy_from_slice(device.as_bytes());
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_with_a_zero_at_the_end() {
        assert_eq!(name("fifteen-letters").expect("a name")[15], 0);
        for bad in ["", "sixteen-letters!", "a\0b", "tap%d"] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
