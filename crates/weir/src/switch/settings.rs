//! The settings of an accelerated bridge, as of the configuration file and the command line.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use hostnet::rtnetlink::{self, Link};
use serde::{Deserialize, Serialize};

use super::abi::STORMS;

/// The hook of a port.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Chosen by the kind of device
    #[default]
    Auto,
    /// XDP in the driver
    Xdp,
    /// tcx at ingress, or a filter of tc where there is no tcx
    Tcx,
    /// None: the port is left to the kernel's bridge
    Kernel,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Tcx => "tcx",
            Self::Kernel => "kernel",
        })
    }
}

/// The settings of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PortSettings {
    /// Its hook; that of the bridge where there is none.
    pub hook: Option<Hook>,
    /// The most addresses behind it; frames from further ones are dropped. None for no limit; with 0 no further one
    /// is learned.
    pub mac_limit: Option<u32>,
    /// Broadcast frames a second that the kernel gets to flood; more are dropped. 0 for no limit.
    pub broadcast: Option<u32>,
    /// The same for multicast frames.
    pub multicast: Option<u32>,
    /// The same for frames to unknown addresses.
    pub unknown: Option<u32>,
}

impl PortSettings {
    /// Frames a second of each kind of `enum storm`; 0 for no limit.
    pub fn storm(&self) -> [u32; STORMS] {
        [self.broadcast, self.multicast, self.unknown].map(Option::unwrap_or_default)
    }

    /// These settings, and those of `defaults` where they have none.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        Self {
            hook: self.hook.or(defaults.hook),
            mac_limit: self.mac_limit.or(defaults.mac_limit),
            broadcast: self.broadcast.or(defaults.broadcast),
            multicast: self.multicast.or(defaults.multicast),
            unknown: self.unknown.or(defaults.unknown),
        }
    }
}

/// The settings of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// The ports to accelerate; none for all of them.
    pub only: Option<Vec<String>>,
    /// The settings of all ports.
    pub default: PortSettings,
    /// The settings of some ports, by name.
    pub ports: BTreeMap<String, PortSettings>,
    /// Room for so many addresses at least: 1 to 4,194,304.
    pub addresses: u32,
    /// Moves of one address within ten seconds from which on it is reported as a loop; at least 1.
    pub flapping: u32,
}

/// The most addresses that the maps have room for.
pub const MOST_ADDRESSES: u32 = 1 << 22;

/// A setting that is refused.
#[derive(Debug)]
pub struct Refused<'s> {
    /// The setting.
    pub key: Key<'s>,
    /// Why, and the cure.
    pub why: String,
}

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'s> {
    /// `addresses`
    Addresses,
    /// `flapping`
    Flapping,
    /// Those of a port
    Port(&'s str),
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Checks the name of a bridge, which may be an alternative one: the kernel can have given it (`dev_valid_name` of
/// net/core/dev.c), and it leads to no other directory.
///
/// # Errors
///
/// Where it is none.
pub fn check_name(name: &str) -> Result<()> {
    let is_forbidden = |c: char| c == '/' || c == ':' || c.is_ascii_whitespace();
    let is_name = rtnetlink::check_name(name).is_ok() && !name.contains(is_forbidden);
    ensure!(
        is_name && !name.starts_with('.'),
        "{name:?} is not the name of a bridge: it has 1 to 127 bytes without '/', ':', spaces and a leading '.'; \
         `ip link show type bridge` lists them"
    );
    Ok(())
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            only: None,
            default: PortSettings::default(),
            ports: BTreeMap::new(),
            addresses: 1 << 14,
            flapping: 5,
        }
    }
}

impl Settings {
    /// The settings of a port, by its name or an alternative one; none where it is not to be accelerated.
    pub fn of_port(&self, link: &Link) -> Option<PortSettings> {
        let wanted = self.only.as_ref();
        if wanted.is_some_and(|only| !only.iter().any(|it| link.is_named(it))) {
            return None;
        }
        let own = self.ports.iter().find(|(name, _)| link.is_named(name));
        let own = own.map(|(_, settings)| settings.clone());
        Some(own.unwrap_or_default().or(&self.default))
    }

    /// Refuses settings that a port has by two of its names.
    ///
    /// # Errors
    ///
    /// With both names.
    pub fn check_port(&self, link: &Link) -> Result<()> {
        let own: Vec<_> = self.ports.keys().filter(|it| link.is_named(it)).collect();
        ensure!(
            own.len() < 2,
            "the port {} has settings as {} and as {}: leave one of them out",
            link.name,
            own[0],
            own[1]
        );
        Ok(())
    }

    /// Checks them: in the configuration, on the command line, and in a request to the daemon.
    ///
    /// # Errors
    ///
    /// The first one that is refused.
    pub fn check(&self) -> Result<(), Refused<'_>> {
        let refuse = |key, why| Err(Refused { key, why });
        if !(1..=MOST_ADDRESSES).contains(&self.addresses) {
            let why = format!(
                "addresses = {}: choose 1 to {MOST_ADDRESSES}",
                self.addresses
            );
            return refuse(Key::Addresses, why);
        }
        if self.flapping == 0 {
            let why = "flapping = 0: choose at least 1".to_owned();
            return refuse(Key::Flapping, why);
        }
        let stranger = self.only.as_ref().and_then(|only| {
            let mut named = self.ports.keys();
            named.find(|port| !only.contains(port))
        });
        if let Some(port) = stranger {
            let why = format!(
                "the port {port} has settings and is not one of those to accelerate (`only`, `--ports`): add it there, \
                 or leave its settings out"
            );
            return refuse(Key::Port(port), why);
        }
        Ok(())
    }

    /// Whether a port has a limit of addresses.
    pub fn has_mac_limits(&self) -> bool {
        let ports = self.ports.values().chain([&self.default]);
        ports.into_iter().any(|port| port.mac_limit.is_some())
    }
}

/// A port and its hook, as `IF=HOOK`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHook {
    /// The port's name.
    pub port: String,
    /// Its hook.
    pub hook: Hook,
}

impl FromStr for PortHook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, hook) = text
            .split_once('=')
            .ok_or("write the port and its hook as IF=HOOK, such as tap0=tcx")?;
        Ok(Self {
            port: port.to_owned(),
            hook: Hook::from_str(hook, false)
                .map_err(|_| format!("'{hook}' is no hook: choose auto, xdp, tcx or kernel"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_the_defaults_that_it_does_not_set() {
        let mut settings = Settings {
            only: Some(vec!["a".into()]),
            ..Settings::default()
        };
        settings.default.hook = Some(Hook::Tcx);
        settings.default.broadcast = Some(100);
        let own = PortSettings {
            hook: Some(Hook::Xdp),
            ..PortSettings::default()
        };
        settings.ports.insert("a".into(), own);
        let link = |name: &str| Link {
            name: name.into(),
            alternative_names: vec![format!("other-{name}")],
            ..Link::default()
        };
        let port = settings.of_port(&link("a")).expect("it is wanted");
        assert_eq!((port.hook, port.storm()), (Some(Hook::Xdp), [100, 0, 0]));
        assert_eq!(settings.of_port(&link("b")), None);
        settings.check_port(&link("a")).expect("by one name");
        let mut twice = settings.clone();
        twice
            .ports
            .insert("other-a".into(), PortSettings::default());
        let error = twice.check_port(&link("a")).expect_err("by two names");
        assert!(error.to_string().contains("as a and as other-a"), "{error}");
        assert!(!settings.has_mac_limits());
        settings.default.mac_limit = Some(0);
        assert!(settings.has_mac_limits());
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let of = |addresses, flapping| Settings {
            addresses,
            flapping,
            ..Settings::default()
        };
        for good in [of(1, 1), of(MOST_ADDRESSES, u32::MAX), Settings::default()] {
            good.check().expect("they are valid");
        }
        let refused =
            |settings: &Settings| settings.check().expect_err("refused").key == Key::Addresses;
        assert!(refused(&of(0, 1)) && refused(&of(MOST_ADDRESSES + 1, 1)));
        assert_eq!(of(1, 0).check().expect_err("refused").key, Key::Flapping);
        let mut stranger = of(1, 1);
        stranger.only = Some(vec!["a".into()]);
        stranger.ports.insert("b".into(), PortSettings::default());
        assert_eq!(stranger.check().expect_err("refused").key, Key::Port("b"));
    }

    #[test]
    fn a_name_is_one_that_the_kernel_can_have_given() {
        for name in ["br0", "br-0a1b2c3d4e5f6", "br0.10", "ä"] {
            check_name(name).expect(name);
        }
        for name in [
            "",
            "a/b",
            "a:b",
            "a b",
            "a\n",
            ".",
            "..",
            ".br0",
            &"x".repeat(128),
        ] {
            check_name(name).expect_err(name);
        }
    }

    #[test]
    fn a_port_and_its_hook_are_one_word() {
        let parsed: PortHook = "veth0=xdp".parse().expect("a hook");
        assert_eq!((parsed.port.as_str(), parsed.hook), ("veth0", Hook::Xdp));
        assert!("veth0".parse::<PortHook>().is_err());
        assert!("veth0=fast".parse::<PortHook>().is_err());
    }
}
