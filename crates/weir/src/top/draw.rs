//! Drawing: a picture of the state and the frames, of nothing else.
//!
//! All characters are ASCII, for terminals of whatever encoding, but for those of names.

use std::fmt::Write as _;

use ratatui::Frame as Canvas;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::state::{Overlay, State};
use super::table::{Column, Table, Value};
use super::view::{Scene, View};
use crate::report::text::plain;

/// The smallest terminal.
pub const SMALLEST: (u16, u16) = (60, 12);

/// Lines above and below the rows: title, views, note, titles of columns; keys.
const ABOVE: u16 = 4;
const BELOW: u16 = 1;

/// The state of the frames in words.
#[derive(Debug, Default)]
pub struct Status {
    /// On the left of the first line.
    pub left: String,
    /// On the right of it.
    pub right: String,
    /// In place of the keys.
    pub message: Option<String>,
    /// Whether there are colours.
    pub is_coloured: bool,
}

/// Draws everything. The table is the one of [`State::table`].
pub fn draw(
    canvas: &mut Canvas<'_>,
    state: &mut State,
    scene: &Scene,
    table: &Table,
    status: &Status,
) {
    let area = canvas.area();
    let buffer = canvas.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return too_small(buffer, area);
    }
    state.page = usize::from(area.height - ABOVE - BELOW);
    let mut picture = Picture {
        buffer,
        area,
        is_coloured: status.is_coloured,
    };
    picture.title(status);
    picture.views(state.view());
    picture.note(table);
    match state.overlay {
        None => picture.rows(state, table),
        Some(overlay) => {
            let text = match overlay {
                Overlay::Help => help(state.is_replay),
                Overlay::Explanation => explanation(state, table),
                Overlay::Gaps => match gaps(scene) {
                    none if none.is_empty() => "Every source of this view could be read.\n".into(),
                    gaps => gaps,
                },
            };
            picture.text(&text, &mut state.scrolled);
        }
    }
    picture.bottom(state, status);
}

fn too_small(buffer: &mut Buffer, area: Rect) {
    let lines = [
        format!("{}x{} is too small:", area.width, area.height),
        format!("weir top needs {}x{}", SMALLEST.0, SMALLEST.1),
        "q quits".to_owned(),
    ];
    for (y, line) in (0..area.height).zip(lines) {
        buffer.set_stringn(0, y, line, area.width.into(), Style::new());
    }
}

struct Picture<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    is_coloured: bool,
}

/// A column as it is drawn.
struct Place {
    /// Its number.
    column: usize,
    x: u16,
    width: u16,
}

impl Picture<'_> {
    fn write(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let room = self.area.width.saturating_sub(x);
        self.buffer.set_stringn(x, y, text, room.into(), style).0
    }

    fn write_right(&mut self, y: u16, text: &str, style: Style) {
        let width = width(text).min(self.area.width);
        self.write(self.area.width - width, y, text, style);
    }

    fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn reversed() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn bad(&self) -> Style {
        if self.is_coloured {
            Self::bold().fg(Color::Red)
        } else {
            Self::bold()
        }
    }

    fn title(&mut self, status: &Status) {
        self.write(0, 0, &status.left, Self::bold());
        self.write_right(0, &format!(" {}", status.right), Self::bold());
    }

    fn views(&mut self, shown: View) {
        let mut x = 0;
        for (at, view) in View::ALL.into_iter().enumerate() {
            let text = format!("{}{}", (at + 1) % 10, view.title());
            let style = if view == shown {
                Self::reversed()
            } else {
                Style::new()
            };
            x = self.write(x, 1, &text, style) + 1;
        }
    }

    fn note(&mut self, table: &Table) {
        let notes: Vec<_> = table.notes.iter().map(|note| plain(note)).collect();
        self.write(0, 2, &notes.join("  |  "), Style::new());
    }

    fn rows(&mut self, state: &mut State, table: &Table) {
        let page = state.page;
        let (sorted_by, _) = state.order();
        let tab = state.tab();
        tab.scroll(page);
        let shown: Vec<_> = table.rows.iter().skip(tab.top).take(page).collect();
        let texts: Vec<Vec<_>> = shown
            .iter()
            .map(|row| row.cells.iter().map(Value::show).collect())
            .collect();
        let widths = widths(table.columns, &texts, sorted_by);
        let (places, left, is_cut) = places(&widths, tab.left, tab.column, self.area.width);
        tab.left = left;
        for place in &places {
            self.heading(
                table,
                place,
                place.column == sorted_by,
                place.column == tab.column,
            );
        }
        if is_cut {
            self.write(self.area.width - 1, ABOVE - 1, ">", Style::new());
        }
        if let Some(missing) = &table.missing {
            self.write(0, ABOVE + 1, &plain(missing), Style::new());
        } else if table.rows.is_empty() {
            self.write(0, ABOVE + 1, "none", Style::new());
        }
        for (y, (row, texts)) in (ABOVE..).zip(shown.iter().zip(&texts)) {
            let is_under_cursor = tab.top + usize::from(y - ABOVE) == tab.row_at;
            if is_under_cursor {
                let line = Rect::new(0, y, self.area.width, 1);
                self.buffer.set_style(line, Self::reversed());
            }
            for place in &places {
                let column = &table.columns[place.column];
                let is_bad =
                    column.is_bad && row.cells[place.column].number().is_some_and(|it| it > 0.0);
                let mut style = if is_bad { self.bad() } else { Style::new() };
                if is_under_cursor {
                    style = style.add_modifier(Modifier::REVERSED);
                    if place.column == tab.column {
                        style = style.add_modifier(Modifier::UNDERLINED);
                    }
                }
                self.cell(place, y, &texts[place.column], column.text > 0, style);
            }
        }
    }

    fn heading(&mut self, table: &Table, place: &Place, is_sorted: bool, is_under_cursor: bool) {
        let column = &table.columns[place.column];
        let mut style = Self::bold();
        if is_under_cursor {
            style = style.add_modifier(Modifier::REVERSED);
        }
        let mark = if is_sorted { "*" } else { "" };
        let title = format!("{}{mark}", column.title);
        self.cell(place, ABOVE - 1, &title, column.text > 0, style);
    }

    fn cell(&mut self, place: &Place, y: u16, text: &str, is_text: bool, style: Style) {
        let needed = width(text);
        let room = place.width.min(self.area.width.saturating_sub(place.x));
        let indent = if is_text {
            0
        } else {
            room.saturating_sub(needed)
        };
        let at = place.x + indent;
        self.buffer
            .set_stringn(at, y, text, (room - indent).into(), style);
        if needed > room && room > 0 {
            self.buffer
                .set_stringn(place.x + room - 1, y, "~", 1, style);
        }
    }

    fn text(&mut self, text: &str, scrolled: &mut usize) {
        let width = usize::from(self.area.width) - 2;
        let lines: Vec<_> = text.lines().flat_map(|line| wrapped(line, width)).collect();
        let room = usize::from(self.area.height - (ABOVE - 1) - BELOW);
        *scrolled = (*scrolled).min(lines.len().saturating_sub(room));
        for (y, line) in (ABOVE - 1..).zip(lines.iter().skip(*scrolled).take(room)) {
            let is_heading = line.chars().all(|it| !it.is_lowercase()) && !line.starts_with(' ');
            let style = if is_heading {
                Self::bold()
            } else {
                Style::new()
            };
            self.write(1, y, line, style);
        }
        if lines.len() > *scrolled + room {
            self.write(self.area.width - 1, self.area.height - 2, "v", Self::bold());
        }
    }

    fn bottom(&mut self, state: &State, status: &Status) {
        let y = self.area.height - BELOW;
        let line = if let Some(message) = &status.message {
            plain(message)
        } else if state.edits_filter {
            format!("filter: {}_", plain(&state.filter))
        } else if state.overlay.is_some() {
            "up, down: scroll   any other key: back to the table".to_owned()
        } else {
            let filter = match state.filter.as_str() {
                "" => "/ filter".to_owned(),
                text => format!("filter '{}' (Esc: none)", plain(text)),
            };
            let freeze = match (state.is_frozen, state.is_replay) {
                (false, false) => "space freeze",
                (false, true) => "space pause",
                (true, _) => "space go on",
            };
            format!("q quit  ? help  arrows  e explain  s sort  {filter}  {freeze}")
        };
        self.write(0, y, &line, Style::new());
    }
}

fn width(text: &str) -> u16 {
    Span::raw(text).width().min(u16::MAX.into()) as u16
}

/// The width of each column for these cells.
fn widths(columns: &[Column], rows: &[Vec<String>], sorted_by: usize) -> Vec<u16> {
    let widest = |(at, column): (usize, &Column)| {
        let cells = rows.iter().map(|row| width(&row[at])).max();
        let most = match column.text {
            0 => u16::MAX,
            most => most,
        };
        let title = width(column.title) + u16::from(at == sorted_by);
        title.max(cells.unwrap_or_default().min(most))
    };
    columns.iter().enumerate().map(widest).collect()
}

/// The columns that fit: the first one, and those from `left` on, among them the one under the cursor. Returns also
/// the new `left`, and whether there are more on the right.
fn places(widths: &[u16], left: usize, cursor: usize, room: u16) -> (Vec<Place>, usize, bool) {
    let mut left = left.clamp(1, widths.len().max(2) - 1);
    if cursor > 0 {
        left = left.min(cursor);
    }
    loop {
        let mut places = Vec::new();
        let mut x = 0;
        let columns = std::iter::once(0).chain(left..widths.len());
        for column in columns {
            let width = widths[column];
            // The last column has room for a mark.
            if !places.is_empty() && x + width >= room {
                break;
            }
            places.push(Place { column, x, width });
            x += width + 1;
        }
        let last = places.last().map_or(0, |place| place.column);
        if cursor <= last || left >= cursor {
            return (places, left, last + 1 < widths.len());
        }
        left += 1;
    }
}

/// Breaks a line at blanks; the other lines are indented as its text is, behind the name of a field.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let letters: Vec<_> = line.chars().collect();
    let indent = letters.iter().take_while(|it| **it == ' ').count();
    let gap = letters[indent..]
        .windows(2)
        .position(|two| two == [' ', ' ']);
    let behind = gap.map_or(indent, |gap| {
        let blanks = letters[indent + gap..].iter().take_while(|it| **it == ' ');
        indent + gap + blanks.count()
    });
    let hanging = if behind <= width / 2 {
        behind
    } else {
        indent.min(width / 2)
    };
    let mut lines = Vec::new();
    let mut rest = &letters[..];
    let mut blanks = 0;
    while blanks + rest.len() > width {
        let room = width - blanks;
        // The field's name is not cut off from its text.
        let from = if blanks == 0 { hanging } else { 0 };
        let blank = rest[from..=room].iter().rposition(|it| *it == ' ');
        let cut = blank.map_or(room, |blank| from + blank).max(1);
        lines.push(format!("{:blanks$}{}", "", String::from_iter(&rest[..cut])));
        rest = &rest[cut..];
        rest = &rest[rest.iter().take_while(|it| **it == ' ').count()..];
        blanks = hanging;
    }
    lines.push(format!("{:blanks$}{}", "", String::from_iter(rest)));
    lines
}

fn help(is_replay: bool) -> String {
    let mut text = "\
KEYS
  1 .. 9, 0, Tab  the view
  arrows, jk, PgUp, PgDn, Home, End, gG  the cursor
  e, Enter  explain the number under the cursor, and show its row in whole
  s  sort by the column under the cursor; again: the other way round
  /  show only rows with a text; Esc: all again
  space  freeze, and go on
  .  the next frame, and freeze
  z  count totals from now on
  i  the sources that this host hides
  Ctrl-L  draw anew     Ctrl-Z  back to the shell     q, Ctrl-C  quit
"
    .to_owned();
    text += if is_replay {
        "  ,  the frame before
  [ ]  a minute back, a minute on
  { }  to the first frame, to the last one
  + -  faster, slower
"
    } else {
        "  + -  a shorter interval, a longer one
"
    };
    text += "
NUMBERS
  k, M, G are thousands; Ki, Mi, Gi of bytes are powers of 1024.
  - is a value that is not available: the counter does not exist, was set back, or was read once only.
  CPU% is of one CPU. A ring is shown as its entries: [##....] 33%.
  The column with * is the one that the rows are sorted by. > at the right: more columns.
";
    text
}

/// Of the number under the cursor.
fn explanation(state: &mut State, table: &Table) -> String {
    let tab = state.tab();
    let Some(column) = table.columns.get(tab.column) else {
        return String::new();
    };
    let row = table.rows.get(tab.row_at);
    let value = row.map_or_else(|| "-".into(), |row| row.cells[tab.column].detail());
    let about = &column.explanation;
    let doctor = about.check.map_or_else(
        || "no check of weir doctor belongs to it".into(),
        |check| format!("weir doctor --explain {check}"),
    );
    let mut text = format!(
        "{}  {value}\n  is       {}\n  read     {}\n  scope    {}\n  without  {}\n  doctor   {doctor}\n  \
         by hand  {}\n",
        column.title, about.meaning, about.read, about.scope, about.without, about.command
    );
    if let Some(row) = row {
        text += "\nTHE ROW\n";
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            let _ = writeln!(text, "  {:<14} {}", column.title, cell.detail());
        }
    }
    text
}

/// The sources that this host hides; empty if there is none.
pub(super) fn gaps(scene: &Scene) -> String {
    let gaps = &scene.now().gaps;
    if gaps.is_empty() {
        return String::new();
    }
    let mut text = "HIDDEN ON THIS HOST\n".to_owned();
    for gap in gaps {
        let _ = writeln!(
            text,
            "  {}: {}\n      cure: {}",
            gap.stage.name(),
            plain(&gap.hidden),
            plain(&gap.cure)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_scroll_to_the_cursor() {
        let widths = [10, 20, 20, 20, 20];
        let columns = |left, cursor| {
            let (places, left, is_cut) = places(&widths, left, cursor, 60);
            let columns: Vec<_> = places.iter().map(|it| it.column).collect();
            (columns, left, is_cut)
        };
        assert_eq!(columns(0, 0), (vec![0, 1, 2], 1, true));
        assert_eq!(columns(1, 4), (vec![0, 3, 4], 3, false));
        assert_eq!(columns(3, 1), (vec![0, 1, 2], 1, true));
        assert_eq!(columns(9, 0), (vec![0, 4], 4, false), "of a wider table");
        let (alone, ..) = places(&[100, 100], 1, 1, 60);
        assert_eq!(alone.len(), 1, "a column that is wider than the terminal");
    }

    #[test]
    fn lines_are_broken_at_blanks() {
        let field = wrapped("  is  aa bb cc dd", 14);
        assert_eq!(field, ["  is  aa bb cc", "      dd"]);
        assert_eq!(wrapped("aaaabbbb", 4), ["aaaa", "bbbb"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(
            wrapped("\u{e4}\u{e4}\u{e4}\u{e4} b", 4),
            ["\u{e4}\u{e4}\u{e4}\u{e4}", "b"]
        );
    }
}
