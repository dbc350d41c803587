//! Flags that several commands of `weir filter` have.

use std::convert::Infallible;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use pf_filter::parse::Dialect;

use crate::filter::rules::{HostModel, Settings};

/// Settings for reading rules.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Host that the rules are for: this machine, or a model of a host in TOML [default: unknown]
    #[arg(long, value_name = "live|FILE")]
    pub host: Option<HostArgument>,
    /// Set a macro, over its definition in the file
    #[arg(short = 'D', long = "define", value_name = "MACRO=VALUE", value_parser = definition)]
    pub define: Vec<(String, String)>,
    /// Language of the rules
    #[arg(long, value_enum, default_value_t = DialectArgument::Openbsd)]
    pub dialect: DialectArgument,
}

impl ReadArgs {
    /// The same for the reader.
    pub fn settings(&self) -> Settings {
        Settings {
            host: match &self.host {
                None => HostModel::Unknown,
                Some(HostArgument(model)) => model.clone(),
            },
            dialect: self.dialect.dialect(),
            macros: self.define.clone(),
        }
    }
}

/// A value of `--host`.
#[derive(Clone, Debug)]
pub struct HostArgument(HostModel);

impl FromStr for HostArgument {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(match text {
            "live" => HostModel::Live,
            path => HostModel::File(path.into()),
        }))
    }
}

/// A value of `--dialect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DialectArgument {
    /// OpenBSD 7.8
    Openbsd,
    /// FreeBSD, with rules of nat, rdr, binat and scrub
    Freebsd,
}

impl DialectArgument {
    /// The same for the parser.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Openbsd => Dialect::OpenBsd,
            Self::Freebsd => Dialect::FreeBsd,
        }
    }
}

/// `MACRO=VALUE`, as pfctl has it.
fn definition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write MACRO=VALUE, such as ext_if=em0")?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err(format!(
            "'{name}' is no name of a macro: letters, digits and '_'"
        ));
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_has_a_name() {
        assert_eq!(definition("a_1=b=c"), Ok(("a_1".into(), "b=c".into())));
        assert_eq!(definition("a="), Ok(("a".into(), String::new())));
        for wrong in ["a", "=b", "a b=c", "$a=b"] {
            assert!(definition(wrong).is_err(), "{wrong}");
        }
    }
}
