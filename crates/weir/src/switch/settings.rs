//! The settings of an accelerated bridge, as of the configuration file and the command line.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
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
    /// The most addresses behind it; frames from further ones are dropped. None for no limit.
    pub mac_limit: Option<u32>,
    /// Broadcast frames a second that the kernel gets to flood; more are dropped.
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
    /// Room for so many addresses at least.
    pub addresses: u32,
    /// Moves of one address within ten seconds from which on it is reported as a loop.
    pub flapping: u32,
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
    /// The settings of a port; none where it is not to be accelerated.
    pub fn of_port(&self, name: &str) -> Option<PortSettings> {
        let wanted = self.only.as_ref();
        if wanted.is_some_and(|only| !only.iter().any(|it| it == name)) {
            return None;
        }
        let own = self.ports.get(name).cloned().unwrap_or_default();
        Some(own.or(&self.default))
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
        let port = settings.of_port("a").expect("it is wanted");
        assert_eq!((port.hook, port.storm()), (Some(Hook::Xdp), [100, 0, 0]));
        assert_eq!(settings.of_port("b"), None);
        assert!(!settings.has_mac_limits());
        settings.default.mac_limit = Some(0);
        assert!(settings.has_mac_limits());
    }

    #[test]
    fn a_port_and_its_hook_are_one_word() {
        let parsed: PortHook = "veth0=xdp".parse().expect("a hook");
        assert_eq!((parsed.port.as_str(), parsed.hook), ("veth0", Hook::Xdp));
        assert!("veth0".parse::<PortHook>().is_err());
        assert!("veth0=fast".parse::<PortHook>().is_err());
    }
}
