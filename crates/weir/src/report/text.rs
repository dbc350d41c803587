//! Reports as text: lines that are wrapped, and tables.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Row, Table, TableStyle};

/// The longest line.
pub const WIDTH: usize = 100;

/// An empty table.
pub fn table(style: TableStyle) -> Table {
    let mut table = Table::new();
    table.load_style(style);
    table
}

/// A name on the left, figures on the right.
pub fn row(name: &str, cells: impl Iterator<Item = String>) -> Row {
    let cells = cells.map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right));
    Row::from(std::iter::once(Cell::new(name)).chain(cells))
}

/// A table without a frame: its columns stand two spaces apart.
pub fn unframed(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Names of devices, processes and containers are anybody's: nothing of them reaches the terminal as a command.
pub fn plain(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Breaks a paragraph into lines, those after the first one indented.
pub fn wrap(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if length > indent && length + 1 + width > WIDTH {
            let _ = write!(lines, "\n{:indent$}", "");
            length = indent;
        } else if !lines.is_empty() {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += width;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_commands_to_the_terminal() {
        assert_eq!(plain("\u{1b}[31mtäp\u{9b}0\n"), "?[31mtäp?0?");
    }
}
