//! Formats the source: blanks, indentation and empty lines; nothing that has a meaning.
//!
//! The text is cut into units as the [lexer](crate::lex) cuts it, but for macros, which stay as
//! they are written. Blanks between two units may change, the units and their order may not: a
//! line whose units would change is kept as it is.

mod unit;

use unit::{Unit, units};

/// Indentation of one level of braces.
const INDENT: &str = "\t";
/// Further indentation of a line that goes on.
const CONTINUED: &str = "    ";
/// Most empty lines that follow each other.
const EMPTY_MAX: usize = 1;

/// Formats a configuration. Comments stay, also in their order; the meaning does not change.
pub fn format(text: &str) -> String {
    let before = units(text);
    let formatted = layout(&before);
    let kept = |list: &[Unit<'_>]| -> Vec<String> {
        list.iter()
            .filter(|unit| unit.has_meaning())
            .map(|unit| unit.text().to_owned())
            .collect()
    };
    // A last fence: a text that is cut differently afterwards is not written.
    if kept(&before) == kept(&units(&formatted)) {
        formatted
    } else {
        text.to_owned()
    }
}

/// Where the next unit goes.
struct Layout<'t> {
    out: String,
    depth: usize,
    /// Something stands on this line.
    started: bool,
    /// This line continues the one before.
    continued: bool,
    empty: usize,
    last: Option<&'t Unit<'t>>,
}

fn layout(units: &[Unit<'_>]) -> String {
    let mut layout = Layout {
        out: String::new(),
        depth: 0,
        started: false,
        continued: false,
        empty: EMPTY_MAX,
        last: None,
    };
    for (index, unit) in units.iter().enumerate() {
        match unit {
            Unit::Newline => layout.newline(),
            Unit::Continuation => layout.continuation(units.get(index + 1)),
            Unit::Blank => {}
            _ => layout.put(unit, &units[..index], &units[index + 1..]),
        }
    }
    let length = layout.out.trim_end_matches('\n').len();
    layout.out.truncate(length);
    if length > 0 {
        layout.out.push('\n');
    }
    layout.out
}

impl<'t> Layout<'t> {
    fn newline(&mut self) {
        self.continued = false;
        if self.started {
            self.empty = 0;
        } else {
            self.empty += 1;
            if self.empty > EMPTY_MAX {
                return;
            }
        }
        self.out.push('\n');
        self.started = false;
        self.last = None;
    }

    fn continuation(&mut self, next: Option<&Unit<'_>>) {
        // One before nothing joins an empty line: the end of the line says the same.
        if !self.started || matches!(next, None | Some(Unit::Newline)) {
            return;
        }
        self.out.push_str(" \\\n");
        self.started = false;
        self.continued = true;
        self.last = None;
    }

    fn put(&mut self, unit: &'t Unit<'t>, before: &[Unit<'_>], after: &[Unit<'_>]) {
        if unit.text() == "}" {
            self.depth = self.depth.saturating_sub(1);
        }
        if self.started {
            let blank = self
                .last
                .is_some_and(|last| wants_blank(last, unit, before, after));
            self.out.push_str(if blank { " " } else { "" });
        } else {
            self.out.push_str(&INDENT.repeat(self.depth));
            self.out
                .push_str(if self.continued { CONTINUED } else { "" });
        }
        self.out.push_str(unit.text());
        self.started = true;
        self.last = Some(unit);
        if unit.text() == "{" {
            self.depth += 1;
        }
    }
}

/// Whether a blank stands between two units. `before` ends with `last`.
fn wants_blank(last: &Unit<'_>, unit: &Unit<'_>, before: &[Unit<'_>], after: &[Unit<'_>]) -> bool {
    if matches!(unit, Unit::Comment(_)) {
        return true;
    }
    match (last.text(), unit.text()) {
        ("!", "=") | ("<", "=" | ">") | (">", "=" | "<") => true,
        (_, "," | ")" | "/") | ("(" | "!" | "/", _) => false,
        ("<", _) => !opens_table(last_table_open(before), after, unit),
        (_, ">") => !closes_table(before),
        // `keep state (…)` and `em0 (…)` have a blank, `prio(1, 2)` and `scrub(…)` as pfctl prints.
        _ => true,
    }
}

/// Whether the bracket before `unit` is that of a table: `<name>`.
fn opens_table(open: bool, after: &[Unit<'_>], unit: &Unit<'_>) -> bool {
    open && matches!(unit, Unit::Word(_) | Unit::Quoted(_))
        && after
            .iter()
            .find(|unit| unit.has_meaning())
            .is_some_and(|unit| unit.text() == ">")
}

fn last_table_open(before: &[Unit<'_>]) -> bool {
    before
        .iter()
        .rev()
        .find(|unit| unit.has_meaning())
        .is_some_and(|unit| unit.text() == "<")
}

/// Whether the unit before a `>` is the name of a table.
fn closes_table(before: &[Unit<'_>]) -> bool {
    let mut last = before.iter().rev().filter(|unit| unit.has_meaning());
    let name = last
        .next()
        .is_some_and(|unit| matches!(unit, Unit::Word(_) | Unit::Quoted(_)));
    name && last.next().is_some_and(|unit| unit.text() == "<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_indentation() {
        let text = "ext_if =   \"em0\"\n\n\n\nset skip on lo0   \nanchor \"a\"   on  $ext_if  {\npass in  proto tcp to port{22,80}\n\
                    block from ! <bad>   to any # trailing  \n}\n  pass out \\\n from $ext_if:network to any\n";
        let wanted = "ext_if = \"em0\"\n\nset skip on lo0\nanchor \"a\" on $ext_if {\n\tpass in proto tcp to port { 22, 80 }\n\
                      \tblock from !<bad> to any # trailing\n}\npass out \\\n    from $ext_if:network to any\n";
        assert_eq!(format(text), wanted);
        assert_eq!(format(wanted), wanted, "a second time changes nothing");
    }

    #[test]
    fn comparisons_keep_their_blanks() {
        let text = "pass proto tcp from any port>1024 to any port 1<>2 user!=root flags S/SA\n";
        let wanted =
            "pass proto tcp from any port > 1024 to any port 1 <> 2 user != root flags S/SA\n";
        assert_eq!(format(text), wanted);
    }

    #[test]
    fn a_comment_that_swallows_the_next_line_keeps_it() {
        let text = "# a comment \\\npass in all\nblock   all\n";
        assert_eq!(format(text), "# a comment \\\npass in all\nblock all\n");
    }

    #[test]
    fn strings_and_macros_stay() {
        let text = "a = \"x  {  y\"\npass in on $a:network label 'two  blanks'   # end\n\tpass from 10/8 to 192.0.2.1   -   192.0.2.9\n";
        let wanted = "a = \"x  {  y\"\npass in on $a:network label 'two  blanks' # end\npass from 10/8 to 192.0.2.1 - 192.0.2.9\n";
        assert_eq!(format(text), wanted);
    }

    #[test]
    fn text_without_tokens_stays() {
        assert_eq!(format(""), "");
        assert_eq!(format("\n\n\n"), "");
        assert_eq!(
            format("pass  label \"open"),
            "pass  label \"open",
            "an open string swallows the end"
        );
    }
}
