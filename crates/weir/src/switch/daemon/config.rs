//! The configuration file, `/etc/weir/switch.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use toml::Spanned;

use crate::switch::settings::{PortSettings, Settings};

/// Where the configuration is.
pub const DEFAULT_PATH: &str = "/etc/weir/switch.toml";
/// Most bytes of a configuration.
const MOST_BYTES: u64 = 1 << 20;

/// A configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The settings of each bridge.
    pub bridges: BTreeMap<String, Settings>,
}

/// An error of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// Its line, from 1 on.
    pub line: usize,
    /// Its column in characters, from 1 on.
    pub column: usize,
    /// The fault and its cure.
    pub message: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    bridge: Vec<Spanned<toml::Table>>,
}

/// A bridge as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    name: String,
    only: Option<Vec<String>>,
    #[serde(default)]
    default: PortSettings,
    #[serde(default)]
    port: BTreeMap<String, PortSettings>,
    addresses: Option<u32>,
    flapping: Option<u32>,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, and all faults of one that is not valid.
    pub fn load(path: &Path) -> Result<Self> {
        let shown = path.display();
        let size = fs::metadata(path)
            .with_context(|| format!("cannot read the configuration {shown}"))?
            .len();
        if size > MOST_BYTES {
            bail!("{shown} is longer than {MOST_BYTES} bytes: is it the right file?");
        }
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {shown}"))?;
        Self::parse(&text).map_err(|faults| {
            let lines = faults
                .iter()
                .map(|fault| format!("{shown}:{}:{}: {}", fault.line, fault.column, fault.message));
            anyhow::anyhow!("{}", lines.collect::<Vec<_>>().join("\n"))
        })
    }

    /// Parses a configuration.
    ///
    /// # Errors
    ///
    /// All faults, of each bridge the first.
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        let document: Document = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            vec![fault(text, at, error.message())]
        })?;
        let mut config = Self::default();
        let mut faults = Vec::new();
        for bridge in document.bridge {
            let at = bridge.span();
            match read(text, at.start, bridge) {
                Ok((name, _)) if config.bridges.contains_key(&name) => {
                    let message =
                        format!("the bridge {name} is there already: leave one of them out");
                    faults.push(fault(text, at.start, &message));
                }
                Ok((name, settings)) => {
                    config.bridges.insert(name, settings);
                }
                Err(found) => faults.push(found),
            }
        }
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(faults)
        }
    }
}

fn read(text: &str, at: usize, bridge: Spanned<toml::Table>) -> Result<(String, Settings), Fault> {
    let refuse = |message: &str| fault(text, at, message);
    let written: Written = bridge
        .into_inner()
        .try_into()
        .map_err(|error: toml::de::Error| refuse(error.message()))?;
    let name = written.name;
    if name.is_empty() || name.len() > 15 || name.contains('/') {
        return Err(refuse(&format!(
            "{name:?} is not the name of a bridge: it has 1 to 15 bytes without '/'"
        )));
    }
    let defaults = Settings::default();
    let settings = Settings {
        only: written.only,
        default: written.default,
        ports: written.port,
        addresses: written.addresses.unwrap_or(defaults.addresses),
        flapping: written.flapping.unwrap_or(defaults.flapping),
    };
    let stranger = settings.only.as_ref().and_then(|only| {
        let mut named = settings.ports.keys();
        named.find(|port| !only.contains(port))
    });
    if let Some(port) = stranger {
        return Err(refuse(&format!(
            "the port {port} has settings and is not in `only`: add it there, or remove them"
        )));
    }
    if settings.addresses == 0 {
        return Err(refuse("addresses = 0: choose at least 1"));
    }
    Ok((name, settings))
}

fn fault(text: &str, at: usize, message: &str) -> Fault {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    Fault {
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
        message: message.trim_end().replace('\n', "; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::settings::Hook;

    #[test]
    fn a_bridge_has_its_settings() {
        let text = r#"
            [[bridge]]
            name = "br0"
            only = ["eth1", "tap0"]
            addresses = 50000
            [bridge.default]
            hook = "auto"
            [bridge.port.tap0]
            hook = "tcx"
            mac-limit = 4
            broadcast = 1000
            [[bridge]]
            name = "br1"
        "#;
        let config = Config::parse(text).expect("it is valid");
        let settings = &config.bridges["br0"];
        let tap = settings.of_port("tap0").expect("it is wanted");
        assert_eq!((tap.hook, tap.mac_limit), (Some(Hook::Tcx), Some(4)));
        assert_eq!(
            settings.of_port("eth1").expect("wanted").hook,
            Some(Hook::Auto)
        );
        assert_eq!(settings.addresses, 50000);
        assert_eq!(config.bridges["br1"], Settings::default());
    }

    #[test]
    fn each_bridge_tells_its_fault() {
        let text = "[[bridge]]\nname = \"br0\"\nfoo = 1\n[[bridge]]\nname = \"br1\"\n[[bridge]]\nname = \"br1\"\n\
                    [[bridge]]\nname = \"br2\"\nonly = []\n[bridge.port.a]\n";
        let faults = Config::parse(text).expect_err("it is not valid");
        let told: Vec<_> = faults
            .iter()
            .map(|it| (it.line, it.message.as_str()))
            .collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].1.contains("unknown field `foo`"), "{told:?}");
        assert_eq!((told[0].0, told[1].0, told[2].0), (1, 6, 8), "{told:?}");
        assert!(told[2].1.contains("not in `only`"), "{told:?}");
    }

    #[test]
    fn a_syntax_error_has_its_place() {
        let faults = Config::parse("[[bridge]]\nname = \n").expect_err("a value is missing");
        assert_eq!(faults[0].line, 2, "{faults:?}");
    }
}
