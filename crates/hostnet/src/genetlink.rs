//! Families of generic netlink (linux/genetlink.h).

pub mod ethtool;
pub mod netdev;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::error::{Context as _, ErrorKind, Result};
use crate::netlink::{Attributes, RawMessage, Socket, attribute, push_attribute, text, u32_of};

/// The family that gives the numbers of the others (`GENL_ID_CTRL`).
const CONTROLLER: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `CTRL_ATTR_MCAST_GROUPS`, and `CTRL_ATTR_MCAST_GRP_NAME` and `CTRL_ATTR_MCAST_GRP_ID` in each of
/// them.
const FAMILY_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
/// `struct genlmsghdr`: command, version, two reserved bytes.
const HEADER: usize = 4;
const VERSION: u8 = 1;

/// A socket to the families of generic netlink.
#[derive(Debug)]
struct Genetlink(Socket);

impl Genetlink {
    fn open() -> Result<Self> {
        Ok(Self(Socket::open(NETLINK_GENERIC)?))
    }

    /// The number of the family `name`; none for a kernel without it.
    fn family(&mut self, name: &str) -> Result<Option<u16>> {
        let answers = self.describe(name)?;
        let id = answers
            .iter()
            .find_map(|answer| attribute(answer, FAMILY_ID));
        Ok(id.and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?))))
    }

    /// The number of a group of the family; none for a kernel without it.
    fn group(&mut self, family: &str, name: &str) -> Result<Option<u32>> {
        let answers = self.describe(family)?;
        let groups = answers
            .iter()
            .filter_map(|answer| attribute(answer, FAMILY_GROUPS));
        Ok(groups.into_iter().find_map(|groups| group(&groups, name)))
    }

    /// The controller's answers about a family; none for a kernel without it.
    fn describe(&mut self, family: &str) -> Result<Vec<Vec<u8>>> {
        let mut attributes = Vec::new();
        push_attribute(
            &mut attributes,
            FAMILY_NAME,
            format!("{family}\0").as_bytes(),
        );
        match self.request(CONTROLLER, GET_FAMILY, &attributes) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            answers => answers
                .with_context(|| format!("cannot look up the family {family} of generic netlink")),
        }
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

/// The number of the group `name` among a family's.
fn group(groups: &[u8], name: &str) -> Option<u32> {
    Attributes(groups).find_map(|(_, group)| {
        let found = text(&attribute(group, GROUP_NAME)?);
        u32_of(&attribute(group, GROUP_ID)?).filter(|_| found == name)
    })
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
    fn the_controllers_group_has_a_number() -> Result<()> {
        let mut socket = Genetlink::open()?;
        assert!(socket.group("nlctrl", "notify")?.is_some());
        assert_eq!(socket.group("nlctrl", "hostnet-none")?, None);
        assert_eq!(socket.group("hostnet-none", "notify")?, None);
        Ok(())
    }

    #[test]
    fn the_controller_has_its_number() -> Result<()> {
        assert_eq!(Genetlink::open()?.family("nlctrl")?, Some(CONTROLLER));
        Ok(())
    }
}
