//! Names of a rule's tests, in pf's order.

use crate::rule::{Address, KeepState, Rule};

macro_rules! fields {
    ($($variant:ident $name:literal,)+) => {
        /// A test of a rule, named like the word that asks for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl Field {
            /// All, in the order in which pf tests.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

fields! {
    Once "once",
    Interface "on",
    Direction "direction",
    Rdomain "on rdomain",
    Family "family",
    Protocol "proto",
    Source "from",
    Destination "to",
    FragmentPorts "ports of a fragment",
    FragmentFlags "flags of a fragment",
    FragmentIcmp "icmp-type of a fragment",
    FragmentOwner "user or group of a fragment",
    Flags "flags",
    Os "os",
    SourcePort "from port",
    DestinationPort "to port",
    User "user",
    Group "group",
    IcmpType "icmp-type",
    IcmpCode "code",
    IcmpReply "keep state for an ICMP reply",
    Fragment "fragment",
    Tos "tos",
    Probability "probability",
    Tagged "tagged",
    ReceivedOn "received-on",
    Prio "prio",
    Rate "max-pkt-rate",
}

/// A set of tests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fields(u32);

impl Fields {
    /// The tests in it, in pf's order.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let field = Field::ALL.get(left.trailing_zeros() as usize).copied()?;
            left &= left - 1;
            Some(field)
        })
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn bit(field: Field) -> u32 {
        1 << field as u32
    }

    /// Those that come after a test.
    pub(super) fn after(self, field: Field) -> Self {
        Self(self.0 & !(Self::bit(field) | (Self::bit(field) - 1)))
    }

    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The tests that a rule asks for; of the others, none can fail.
    pub(super) fn asked_by(rule: &Rule) -> Self {
        let (source, destination) = (&rule.source, &rule.destination);
        let ports = source.port.is_some() || destination.port.is_some();
        let owner = rule.user.is_some() || rule.group.is_some();
        let asked = [
            (Field::Interface, rule.on.is_some()),
            (Field::Direction, rule.direction.is_some()),
            (Field::Rdomain, rule.on.is_some()),
            (Field::Family, rule.family.is_some()),
            (Field::Protocol, rule.protocol.is_some()),
            (
                Field::Source,
                source.negated || source.address != Address::Any,
            ),
            (
                Field::Destination,
                destination.negated || destination.address != Address::Any,
            ),
            (Field::FragmentPorts, ports),
            (Field::FragmentFlags, rule.flags.is_some()),
            (Field::FragmentIcmp, rule.icmp.is_some()),
            (Field::FragmentOwner, owner),
            (Field::Flags, rule.flags.is_some()),
            (Field::Os, rule.os.is_some()),
            (Field::SourcePort, source.port.is_some()),
            (Field::DestinationPort, destination.port.is_some()),
            (Field::User, rule.user.is_some()),
            (Field::Group, rule.group.is_some()),
            (Field::IcmpType, rule.icmp.is_some()),
            (Field::IcmpCode, rule.icmp.is_some()),
            (Field::IcmpReply, rule.state != KeepState::No),
            (Field::Fragment, rule.fragment),
            (Field::Tos, rule.tos != 0),
            (Field::Tagged, rule.tagged.is_some()),
            (Field::ReceivedOn, rule.received_on.is_some()),
            (Field::Prio, rule.prio.is_some()),
        ];
        asked
            .into_iter()
            .filter(|(_, asked)| *asked)
            .map(|(field, _)| field)
            .collect()
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        Self(
            fields
                .into_iter()
                .fold(0, |bits, field| bits | Self::bit(field)),
        )
    }
}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
