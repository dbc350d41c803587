//! Tables: columns that explain themselves, and rows of values.

use serde_json::{Map, Value as Json, json};

use crate::report::text::plain;

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its name in JSON, with its unit.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The most characters of its texts; 0 for numbers, which are never cut.
    pub text: u16,
    /// Whether a number above 0 is bad news.
    pub is_bad: bool,
    /// The explanation of its values.
    pub explanation: Explanation,
}

/// The explanation of a number.
#[derive(Debug)]
pub struct Explanation {
    /// Its meaning.
    pub meaning: &'static str,
    /// Where it is read.
    pub read: &'static str,
    /// The owner of the count: the host, a network namespace, a device, a CPU.
    pub scope: &'static str,
    /// Events and objects that it excludes.
    pub without: &'static str,
    /// The check of `weir doctor` that belongs to it.
    pub check: Option<&'static str>,
    /// The command that shows it by hand.
    pub command: &'static str,
}

impl Column {
    /// A column of numbers.
    pub const fn number(id: &'static str, title: &'static str, explanation: Explanation) -> Self {
        Self {
            id,
            title,
            text: 0,
            is_bad: false,
            explanation,
        }
    }

    /// One of numbers that should be 0.
    pub const fn bad(id: &'static str, title: &'static str, explanation: Explanation) -> Self {
        let column = Self::number(id, title, explanation);
        Self {
            is_bad: true,
            ..column
        }
    }

    /// One of network namespaces.
    pub const fn namespace(explanation: Explanation) -> Self {
        Self::text("namespace", "NETNS", 24, explanation)
    }

    /// One of texts, with their most characters.
    pub const fn text(
        id: &'static str,
        title: &'static str,
        most: u16,
        explanation: Explanation,
    ) -> Self {
        let column = Self::number(id, title, explanation);
        Self {
            text: most,
            ..column
        }
    }
}

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not available.
    None,
    /// Text of whatever origin.
    Text(String),
    /// A number that is a name, such as a PID.
    Id(u64),
    /// A count.
    Count(u64),
    /// A count a second.
    Rate(f64),
    /// A share in percent.
    Percent(f64),
    /// Nanoseconds.
    Nanoseconds(f64),
    /// Bytes.
    Bytes(u64),
    /// The entries of a ring, and its slots.
    Ring(u32, u32),
    /// Yes or no.
    Flag(bool),
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its identity, by which the cursor follows it.
    pub key: String,
    /// A value for each column.
    pub cells: Vec<Value>,
}

/// A table.
#[derive(Debug, Default)]
pub struct Table {
    /// Its columns.
    pub columns: &'static [Column],
    /// Its rows.
    pub rows: Vec<Row>,
    /// Remarks on it: prices, gaps.
    pub notes: Vec<String>,
    /// The reason why it has no rows, where that is not the host's state.
    pub missing: Option<String>,
}

/// The slots of the picture of a ring.
const BAR: u32 = 5;

impl Value {
    /// A text that may be absent.
    pub fn text(text: Option<impl Into<String>>) -> Self {
        text.map_or(Self::None, |text| Self::Text(text.into()))
    }

    /// A number that may be unavailable.
    pub fn or_none<T>(number: Option<T>, value: impl FnOnce(T) -> Self) -> Self {
        number.map_or(Self::None, value)
    }

    /// For a reader.
    pub fn show(&self) -> String {
        match self {
            Self::None => "-".into(),
            Self::Text(text) => plain(text),
            Self::Id(id) => id.to_string(),
            Self::Count(count) => short(*count as f64),
            Self::Rate(rate) => short(*rate),
            Self::Percent(percent) => format!("{percent:.1}"),
            Self::Nanoseconds(ns) => format!("{ns:.0}"),
            Self::Bytes(bytes) => binary(*bytes),
            Self::Ring(level, size) => ring(*level, *size),
            Self::Flag(true) => "yes".into(),
            Self::Flag(false) => "no".into(),
        }
    }

    /// For a reader who wants all of it.
    pub fn detail(&self) -> String {
        match self {
            Self::Count(number) | Self::Bytes(number) if *number > 999 => {
                format!("{} ({number})", self.show())
            }
            Self::Ring(level, size) => format!("{} {level} of {size}", self.show()),
            _ => self.show(),
        }
    }

    /// For a program.
    pub fn json(&self) -> Json {
        match self {
            Self::None => Json::Null,
            Self::Text(text) => json!(text),
            Self::Id(number) | Self::Count(number) | Self::Bytes(number) => json!(number),
            Self::Rate(number) | Self::Percent(number) | Self::Nanoseconds(number) => {
                json!((number * 1000.0).round() / 1000.0)
            }
            Self::Ring(level, size) => json!({"entries": level, "slots": size}),
            Self::Flag(flag) => json!(flag),
        }
    }

    /// By which rows are sorted; none for texts and where there is no value.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::None | Self::Text(_) => None,
            Self::Id(number) | Self::Count(number) | Self::Bytes(number) => Some(*number as f64),
            Self::Rate(number) | Self::Percent(number) | Self::Nanoseconds(number) => Some(*number),
            Self::Ring(level, size) => Some(f64::from(*level) / f64::from((*size).max(1))),
            Self::Flag(flag) => Some(f64::from(u8::from(*flag))),
        }
    }
}

/// At most five characters: `0`, `0.25`, `12`, `1.23k`, `12.3k`, `123M`.
fn short(number: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    if number < 9.95 && number.fract() != 0.0 {
        return if number < 0.995 {
            format!("{number:.2}")
        } else {
            format!("{number:.1}")
        };
    }
    if number < 999.5 {
        return format!("{number:.0}");
    }
    scaled(number, 1000.0, &["k", "M", "G", "T", "P", "E"])
}

/// Bytes, as memory is counted.
fn binary(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    scaled(bytes as f64, 1024.0, &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

fn scaled(number: f64, factor: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut unit = "";
    for next in units {
        if number < 999.5 {
            break;
        }
        number /= factor;
        unit = next;
    }
    let decimals = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}{unit}")
}

/// A ring as a picture: `[##...]`.
fn ring(level: u32, size: u32) -> String {
    let marks = u64::from(level) * u64::from(BAR) / u64::from(size.max(1));
    // One entry shows, and only a full ring is full.
    let marks = marks.max(u64::from(level > 0)).min(BAR.into()) as usize;
    let (full, empty) = ("#".repeat(marks), ".".repeat(BAR as usize - marks));
    format!("[{full}{empty}]")
}

impl Table {
    /// Sorts the rows by a column: numbers from high to low and texts by alphabet, or reversed. Those without a value
    /// are last.
    pub fn sort(&mut self, column: usize, reversed: bool) {
        self.rows.sort_by(|one, other| {
            let (one, other) = (&one.cells[column], &other.cells[column]);
            let order = match (one, other) {
                (Value::Text(one), Value::Text(other)) => one.cmp(other),
                (Value::None, _) | (_, Value::None) => {
                    return (*one == Value::None).cmp(&(*other == Value::None));
                }
                _ => {
                    let number = |value: &Value| value.number().unwrap_or_default();
                    number(other).total_cmp(&number(one))
                }
            };
            if reversed { order.reverse() } else { order }
        });
    }

    /// Keeps the rows that have this text in a cell as it is shown, whatever the case of its letters.
    pub fn filter(&mut self, text: &str) {
        let text = text.to_lowercase();
        self.rows.retain(|row| {
            let mut cells = row.cells.iter();
            cells.any(|cell| cell.show().to_lowercase().contains(&text))
        });
    }

    /// The rows as JSON objects.
    pub fn json(&self) -> Json {
        let row = |row: &Row| {
            let columns = self.columns.iter().zip(&row.cells);
            let members = columns.map(|(column, cell)| (column.id.to_owned(), cell.json()));
            Json::Object(members.collect::<Map<_, _>>())
        };
        self.rows.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, shown) in [
            (0.0, "0"),
            (0.004, "0.00"),
            (0.25, "0.25"),
            (1.5, "1.5"),
            (9.0, "9"),
            (9.97, "10"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (1234.0, "1.23k"),
            (99_960.0, "100k"),
            (123_456_789.0, "123M"),
            (u64::MAX as f64, "18.4E"),
        ] {
            assert_eq!(Value::Rate(number).show(), shown);
        }
        assert_eq!(Value::Bytes(1023).show(), "1023");
        assert_eq!(Value::Bytes(212_992).show(), "208Ki");
        assert_eq!(Value::Bytes(u64::MAX).show(), "16.0Ei");
    }

    #[test]
    fn rings_are_pictures() {
        for (level, shown) in [
            (0, "[.....]"),
            (1, "[#....]"),
            (1024, "[##...]"),
            (2047, "[####.]"),
            (2048, "[#####]"),
        ] {
            assert_eq!(Value::Ring(level, 2048).show(), shown);
        }
        assert_eq!(Value::Ring(0, 0).show(), "[.....]");
        assert_eq!(Value::Ring(7, 2048).detail(), "[#....] 7 of 2048");
    }

    #[test]
    fn rows_without_a_value_are_last_in_either_order() {
        let row = |value| Row {
            key: String::new(),
            cells: vec![value],
        };
        let numbers = [None, Some(1), Some(3), Some(2)];
        let mut table = Table {
            rows: numbers
                .map(|it| row(Value::or_none(it, Value::Count)))
                .into(),
            ..Table::default()
        };
        let shown = |table: &Table| -> String {
            table.rows.iter().map(|row| row.cells[0].show()).collect()
        };
        table.sort(0, false);
        assert_eq!(shown(&table), "321-");
        table.sort(0, true);
        assert_eq!(shown(&table), "123-");
        table.filter("3");
        assert_eq!(shown(&table), "3");
    }

    #[test]
    fn texts_are_harmless() {
        assert_eq!(Value::Text("a\u{1b}[2Jb".into()).show(), "a?[2Jb");
    }
}
