//! The configuration file, `/etc/weir/switch.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::switch::settings::{Key, PortSettings, Settings, check_name};

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

/// A bridge as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    name: Spanned<String>,
    only: Option<Vec<String>>,
    #[serde(default)]
    default: PortSettings,
    #[serde(default)]
    port: BTreeMap<Spanned<String>, PortSettings>,
    addresses: Option<Spanned<u32>>,
    flapping: Option<Spanned<u32>>,
}

impl Written {
    fn settings(&self) -> Settings {
        let defaults = Settings::default();
        let ports = self.port.iter();
        let number = |written: &Option<Spanned<u32>>, default| {
            written.as_ref().map_or(default, |it| *it.get_ref())
        };
        Settings {
            only: self.only.clone(),
            default: self.default.clone(),
            ports: ports
                .map(|(port, settings)| (port.get_ref().clone(), settings.clone()))
                .collect(),
            addresses: number(&self.addresses, defaults.addresses),
            flapping: number(&self.flapping, defaults.flapping),
        }
    }
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
        let mut config = Self::default();
        let mut faults = Vec::new();
        for bridge in bridges(text)? {
            match read(text, bridge) {
                Ok((name, _)) if config.bridges.contains_key(name.get_ref()) => {
                    let message = format!(
                        "the bridge {} is there already: leave one of them out",
                        name.get_ref()
                    );
                    faults.push(fault(text, name.span().start, &message));
                }
                Ok((name, settings)) => {
                    config.bridges.insert(name.into_inner(), settings);
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

/// The tables of the bridges, which have the place of each value.
fn bridges(text: &str) -> Result<Vec<Spanned<DeValue<'_>>>, Vec<Fault>> {
    let file = DeTable::parse(text).map_err(|error| vec![of_toml(text, 0, &error)])?;
    let mut bridges = Vec::new();
    let mut faults = Vec::new();
    for (key, value) in file.into_inner() {
        let at = value.span().start;
        match (key.get_ref().as_ref(), value.into_inner()) {
            ("bridge", DeValue::Array(array)) => bridges.extend(array),
            ("bridge", _) => faults.push(fault(text, at, "write each bridge as [[bridge]]")),
            (key_text, _) => {
                let message = format!("unknown field `{key_text}`, expected `bridge`");
                faults.push(fault(text, key.span().start, &message));
            }
        }
    }
    if faults.is_empty() {
        Ok(bridges)
    } else {
        Err(faults)
    }
}

fn read(text: &str, bridge: Spanned<DeValue<'_>>) -> Result<(Spanned<String>, Settings), Fault> {
    let at = bridge.span().start;
    let written = Written::deserialize(bridge.into_deserializer());
    let written = written.map_err(|error| of_toml(text, at, &error))?;
    let settings = written.settings();
    let name = written.name;
    if let Err(error) = check_name(name.get_ref()) {
        return Err(fault(text, name.span().start, &error.to_string()));
    }
    if let Err(refused) = settings.check() {
        let place = match refused.key {
            Key::Addresses => start(written.addresses.as_ref()),
            Key::Flapping => start(written.flapping.as_ref()),
            Key::Port(name) => start(written.port.keys().find(|port| port.get_ref() == name)),
        };
        return Err(fault(text, place.unwrap_or(at), &refused.why));
    }
    Ok((name, settings))
}

fn start<T>(value: Option<&Spanned<T>>) -> Option<usize> {
    value.map(|value| value.span().start)
}

/// An error of the parser; `at` is its place where it has none.
fn of_toml(text: &str, at: usize, error: &toml::de::Error) -> Fault {
    let at = error.span().map_or(at, |span| span.start);
    fault(text, at, error.message())
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
    use hostnet::rtnetlink::Link;

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
        let port = |name: &str| Link {
            name: name.into(),
            ..Link::default()
        };
        let tap = settings.of_port(&port("tap0")).expect("it is wanted");
        assert_eq!((tap.hook, tap.mac_limit), (Some(Hook::Tcx), Some(4)));
        assert_eq!(
            settings.of_port(&port("eth1")).expect("wanted").hook,
            Some(Hook::Auto)
        );
        assert_eq!(settings.addresses, 50000);
        assert_eq!(config.bridges["br1"], Settings::default());
    }

    /// Line, column and message of each fault.
    fn told(text: &str) -> Vec<(usize, usize, String)> {
        let faults = Config::parse(text).expect_err("it is not valid");
        let told = faults.into_iter();
        told.map(|it| (it.line, it.column, it.message)).collect()
    }

    #[test]
    fn each_bridge_tells_its_fault() {
        let text = "[[bridge]]\nname = \"br0\"\nfoo = 1\n[[bridge]]\nname = \"br1\"\n[[bridge]]\nname = \"br1\"\n\
                    [[bridge]]\nname = \"br2\"\nonly = []\n[bridge.port.a]\n";
        let told = told(text);
        let places: Vec<_> = told.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(places, [(3, 1), (7, 8), (11, 14)], "{told:?}");
        for (found, wanted) in
            told.iter()
                .zip(["unknown field `foo`", "already", "(`only`, `--ports`)"])
        {
            assert!(found.2.contains(wanted), "no {wanted}: {told:?}");
        }
    }

    #[test]
    fn a_fault_has_the_place_of_its_value() {
        let bridge = |lines: &str| format!("# one\n[[bridge]]\nname = \"br0\"\n{lines}\n");
        for (text, place) in [
            ("# one\n[[bridge]]\nonly = []\n".to_owned(), (2, 1)),
            ("# one\n[[bridge]]\n  name = \"a/b\"\n".to_owned(), (3, 10)),
            ("# one\n\n[[brigde]]\nname = \"br0\"\n".to_owned(), (3, 3)),
            ("# one\n[bridge]\nname = \"br0\"\n".to_owned(), (2, 1)),
            (
                "bridge = [{ name = \"br0\" }, { name = 0 }]".to_owned(),
                (1, 38),
            ),
            ("# one\n[[bridge]]\nname = \".br\"\n".to_owned(), (3, 8)),
            (bridge("addresses = 0"), (4, 13)),
            (bridge("flapping = 1\naddresses = 4194305"), (5, 13)),
            (bridge("flapping = 0"), (4, 12)),
            (bridge("flapping = -1"), (4, 12)),
            (bridge("only = [\"ä\", 5]"), (4, 14)),
            (
                bridge("default = { hook = \"auto\", mac-limits = 1 }"),
                (4, 28),
            ),
            (bridge("[bridge.default]\nhook = \"fast\""), (5, 8)),
            (
                bridge("[bridge.port.a]\n[bridge.port.b]\nbroadcast = \"1\""),
                (6, 13),
            ),
        ] {
            let told = told(&text);
            assert_eq!(told.len(), 1, "{text}: {told:?}");
            assert_eq!((told[0].0, told[0].1), place, "{text}: {told:?}");
        }
    }

    #[test]
    fn a_syntax_error_has_its_place() {
        let faults = Config::parse("[[bridge]]\nname = \n").expect_err("a value is missing");
        assert_eq!(faults[0].line, 2, "{faults:?}");
    }
}
