//! Flags of several commands: one definition, one help text.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::engine::{Engine, Wait};

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    Table,
    /// JSON
    Json,
}

/// A parser for a number of seconds within `range`.
pub fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        Ok(seconds) if range.contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "choose from {} to {} seconds",
            range.start(),
            range.end()
        )),
    }
}

/// A parser for those engines that a command offers.
pub fn engines(offers: impl Fn(Engine) -> bool) -> impl TypedValueParser<Value = Engine> {
    some_of(offers)
}

/// A parser for those ways to wait that a command offers.
pub fn waits(offers: impl Fn(Wait) -> bool) -> impl TypedValueParser<Value = Wait> {
    some_of(offers)
}

fn some_of<T>(offers: impl Fn(T) -> bool) -> impl TypedValueParser<Value = T>
where
    T: ValueEnum + Copy + Send + Sync + 'static,
{
    let all = T::value_variants().iter().copied();
    let offered = all.filter(|value| offers(*value));
    let names = offered.filter_map(|value| value.to_possible_value());
    PossibleValuesParser::new(names).try_map(|name| T::from_str(&name, false))
}

/// The broker's socket: of the flag, else of the environment, else where it is by default.
pub fn broker_socket(flag: Option<&Path>) -> PathBuf {
    let of_environment = || std::env::var_os("WEIR_BROKER").map(PathBuf::from);
    let path = flag.map(Path::to_owned).or_else(of_environment);
    path.unwrap_or_else(|| xsk::broker::DEFAULT_PATH.into())
}
