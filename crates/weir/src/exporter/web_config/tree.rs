//! YAML as a tree in which each value has its place. Only the YAML of a web configuration: maps, lists and
//! scalars, and no anchors, aliases, tags and further documents.

use std::fmt;

use anyhow::{Result, anyhow, bail, ensure};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

/// Deepest nesting.
const MOST_DEPTH: usize = 8;

/// A place in a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    line: usize,
    column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl From<Marker> for Place {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line(),
            column: marker.col() + 1,
        }
    }
}

/// A value and its place.
#[derive(Debug)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Debug)]
pub enum Value {
    /// Nothing, or `null`.
    Null,
    /// A scalar of any type, as text.
    Scalar(String),
    /// A list.
    List,
    /// A map, in order.
    Map(Vec<(String, Place, Node)>),
}

/// The tree of a file; an empty one is an empty map.
pub fn parse(text: &str) -> Result<Node> {
    let mut events = Parser::new_from_str(text).map(|event| {
        event
            .map(|(event, span)| (event, Place::from(span.start)))
            .map_err(|error| anyhow!("{}: {}", Place::from(*error.marker()), error.info()))
    });
    let mut next = || events.next().unwrap_or_else(|| bail!("it ends early"));
    let mut root = None;
    loop {
        let (event, place) = next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => {
                ensure!(root.is_none(), "{place}: a second document");
                root = Some(node(event, place, &mut next, 0)?);
            }
        }
    }
    let empty = Node {
        place: Place { line: 1, column: 1 },
        value: Value::Null,
    };
    Ok(root.unwrap_or(empty))
}

fn node<'a>(
    event: Event<'a>,
    place: Place,
    next: &mut impl FnMut() -> Result<(Event<'a>, Place)>,
    depth: usize,
) -> Result<Node> {
    ensure!(depth < MOST_DEPTH, "{place}: nested too deeply");
    let value = match event {
        Event::Scalar(_, _, _, Some(_))
        | Event::SequenceStart(_, Some(_))
        | Event::MappingStart(_, Some(_)) => bail!("{place}: a tag; values here need none"),
        Event::Scalar(text, ScalarStyle::Plain, ..)
            if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") =>
        {
            Value::Null
        }
        Event::Scalar(text, ..) => Value::Scalar(text.into_owned()),
        Event::SequenceStart(..) => {
            loop {
                match next()? {
                    (Event::SequenceEnd, _) => break,
                    (event, place) => drop(node(event, place, next, depth + 1)?),
                }
            }
            Value::List
        }
        Event::MappingStart(..) => Value::Map(map(next, depth)?),
        _ => bail!("{place}: anchors and aliases are not supported"),
    };
    Ok(Node { place, value })
}

fn map<'a>(
    next: &mut impl FnMut() -> Result<(Event<'a>, Place)>,
    depth: usize,
) -> Result<Vec<(String, Place, Node)>> {
    let mut entries: Vec<(String, Place, Node)> = Vec::new();
    loop {
        let (event, place) = next()?;
        let key = match event {
            Event::MappingEnd => return Ok(entries),
            Event::Scalar(key, ..) => key.into_owned(),
            _ => bail!("{place}: a key must be a word"),
        };
        let earlier = entries.iter().find(|(it, ..)| *it == key);
        if let Some((_, earlier, _)) = earlier {
            bail!("{place}: {key:?} stands here and at {earlier}");
        }
        let (event, at) = next()?;
        let value = node(event, at, next, depth + 1)?;
        entries.push((key, place, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_places() {
        let node = parse("a:\n  b: 'x'\n  c:\nd: [1, 2]\n").expect("a tree");
        let Value::Map(entries) = node.value else {
            panic!("a map")
        };
        let (key, place, a) = &entries[0];
        assert_eq!(
            (key.as_str(), place.to_string().as_str()),
            ("a", "line 1, column 1")
        );
        let Value::Map(inner) = &a.value else {
            panic!("a map")
        };
        assert_eq!(inner[0].2.place.to_string(), "line 2, column 6");
        assert!(matches!(inner[1].2.value, Value::Null));
        assert!(matches!(entries[1].2.value, Value::List));
        assert!(matches!(parse("").expect("empty").value, Value::Null));
    }

    #[test]
    fn yaml_beyond_maps_and_scalars_is_refused() {
        for (text, expected) in [
            (
                "a: 1\na: 2\n",
                "line 2, column 1: \"a\" stands here and at line 1, column 1",
            ),
            ("a: *b\n", "line 1, column 4"),
            ("a: !!str b\n", "a tag"),
            ("a: 1\n---\nb: 1\n", "a second document"),
            ("a: [[[[[[[[[[1]]]]]]]]]]\n", "nested too deeply"),
            ("a: 'b\n", "line "),
            ("? [a]\n: b\n", "a key must be a word"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
