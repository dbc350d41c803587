//! Families of generic netlink (linux/genetlink.h).

pub mod netdev;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::error::{Context as _, ErrorKind, Result};
use crate::netlink::{RawMessage, Socket, attribute, push_attribute};

/// The family that gives the numbers of the others (`GENL_ID_CTRL`).
const CONTROLLER: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`: command, version, two reserved bytes.
const HEADER: usize = 4;
const VERSION: u8 = 1;

/// A socket to the families of generic netlink.
struct Genetlink(Socket);

impl Genetlink {
    fn open() -> Result<Self> {
        Ok(Self(Socket::open(NETLINK_GENERIC)?))
    }

    /// The number of the family `name`; none for a kernel without it.
    fn family(&mut self, name: &str) -> Result<Option<u16>> {
        let mut attributes = Vec::new();
        push_attribute(&mut attributes, FAMILY_NAME, format!("{name}\0").as_bytes());
        let answers = match self.request(CONTROLLER, GET_FAMILY, &attributes) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            answers => answers
                .with_context(|| format!("cannot look up the family {name} of generic netlink"))?,
        };
        let id = answers
            .iter()
            .find_map(|answer| attribute(answer, FAMILY_ID));
        Ok(id.and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?))))
    }

    /// Sends a command with these attributes and returns the attributes of each answer.
    fn request(&mut self, family: u16, command: u8, attributes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.send(family, command, attributes, NLM_F_ACK)
    }

    /// The same with a command that gives a list.
    fn dump(&mut self, family: u16, command: u8, attributes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.send(family, command, attributes, NLM_F_DUMP)
    }

    fn send(
        &mut self,
        family: u16,
        command: u8,
        attributes: &[u8],
        flags: u16,
    ) -> Result<Vec<Vec<u8>>> {
        let mut payload = vec![command, VERSION, 0, 0];
        payload.extend(attributes);
        let message = RawMessage {
            kind: family,
            payload,
        };
        let answers = self.0.request(&message, flags)?;
        Ok(answers
            .into_iter()
            .map(|answer| answer.payload.get(HEADER..).unwrap_or_default().to_vec())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_is_not_there_is_none() -> Result<()> {
        assert_eq!(Genetlink::open()?.family("hostnet-none")?, None);
        Ok(())
    }

    #[test]
    fn the_controller_has_its_number() -> Result<()> {
        assert_eq!(Genetlink::open()?.family("nlctrl")?, Some(CONTROLLER));
        Ok(())
    }
}
