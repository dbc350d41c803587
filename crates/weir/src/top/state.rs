//! The choices of the keys: the view, its order, the cursor.

use std::collections::BTreeMap;

use super::key::Key;
use super::table::{Row, Table};
use super::view::{Scene, View};

/// The choices of the keys.
#[derive(Debug, Default)]
pub struct State {
    view: usize,
    tabs: BTreeMap<View, Tab>,
    /// Only rows with this text are shown.
    pub filter: String,
    /// Whether keys edit the filter.
    pub edits_filter: bool,
    /// The text over the table.
    pub overlay: Option<Overlay>,
    /// Lines that are scrolled away in it.
    pub scrolled: usize,
    /// Whether the frames stand still.
    pub is_frozen: bool,
    /// Whether a recording is shown.
    pub is_replay: bool,
    /// Rows that fit on a page; set where they are drawn.
    pub page: usize,
}

/// The text over the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlay {
    /// The keys.
    Help,
    /// The number under the cursor.
    Explanation,
    /// Sources that this host hides.
    Gaps,
}

/// The order and the cursor of a view.
#[derive(Debug, Clone, Default)]
pub struct Tab {
    /// The column by which it is sorted, and whether that is reversed; none for the view's own order.
    order: Option<(usize, bool)>,
    /// The row under the cursor, by its key; none for the first one.
    row: Option<String>,
    /// Where it was last.
    pub row_at: usize,
    /// The column under the cursor.
    pub column: usize,
    /// The first row that is shown.
    pub top: usize,
    /// The first column that is shown behind the first of all.
    pub left: usize,
}

/// The effect of a key beyond the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing more.
    None,
    /// The end.
    Quit,
    /// Back to the shell.
    Suspend,
    /// Everything drawn anew.
    Redraw,
    /// The next frame, or the one before in a recording.
    Step(isize),
    /// So many seconds on in a recording, or back.
    Seek(i64),
    /// Faster, or slower.
    Faster(bool),
    /// Totals that count from now on.
    Zero,
}

impl State {
    /// The view that is shown.
    pub fn view(&self) -> View {
        View::ALL[self.view]
    }

    /// Shows a view.
    pub fn show(&mut self, view: View) {
        self.view = View::ALL
            .iter()
            .position(|it| *it == view)
            .unwrap_or_default();
    }

    /// The order and the cursor of the view that is shown.
    pub fn tab(&mut self) -> &mut Tab {
        self.tabs.entry(self.view()).or_default()
    }

    /// The column by which the view is sorted, and whether that is reversed.
    pub fn order(&mut self) -> (usize, bool) {
        let view = self.view();
        self.tab().order.unwrap_or_else(|| {
            let (id, is_reversed) = view.order();
            let mut columns = view.columns().iter();
            let at = columns.position(|column| column.id == id);
            (at.unwrap_or_default(), is_reversed)
        })
    }

    /// The table of the view, filtered and sorted, with the cursor on a row of it.
    pub fn table(&mut self, scene: &Scene) -> Table {
        let mut table = self.view().table(scene);
        if !self.filter.is_empty() {
            table.filter(&self.filter);
        }
        let (column, is_reversed) = self.order();
        table.sort(column, is_reversed);
        self.tab().follow(&table.rows);
        table
    }

    /// Handles a key; `rows` are those that are shown.
    pub fn press(&mut self, key: Key, rows: &[Row]) -> Action {
        match key {
            Key::Control('c') => return Action::Quit,
            Key::Control('z') => return Action::Suspend,
            Key::Control('l') => return Action::Redraw,
            _ => {}
        }
        if self.edits_filter {
            self.edit(key);
            return Action::None;
        }
        if self.overlay.is_some() {
            return self.press_in_overlay(key);
        }
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('?' | 'h') => self.open(Overlay::Help),
            Key::Char('e') | Key::Enter => self.open(Overlay::Explanation),
            Key::Char('i') => self.open(Overlay::Gaps),
            Key::Char('/') => self.edits_filter = true,
            Key::Escape => self.filter.clear(),
            Key::Char(' ') => self.is_frozen = !self.is_frozen,
            Key::Char('.') => {
                self.is_frozen = true;
                return Action::Step(1);
            }
            Key::Char(',') if self.is_replay => {
                self.is_frozen = true;
                return Action::Step(-1);
            }
            Key::Char('[') if self.is_replay => return Action::Seek(-60),
            Key::Char(']') if self.is_replay => return Action::Seek(60),
            Key::Char('{') if self.is_replay => return Action::Seek(i64::MIN),
            Key::Char('}') if self.is_replay => return Action::Seek(i64::MAX),
            Key::Char('+') => return Action::Faster(true),
            Key::Char('-') => return Action::Faster(false),
            Key::Char('z') => return Action::Zero,
            Key::Char('s') => self.sort(),
            Key::Tab => self.view = (self.view + 1) % View::ALL.len(),
            Key::BackTab => self.view = (self.view + View::ALL.len() - 1) % View::ALL.len(),
            Key::Char(digit @ '0'..='9') => {
                let digit = digit as usize - '0' as usize;
                self.view = (digit + View::ALL.len() - 1) % View::ALL.len();
            }
            key => self.go(key, rows),
        }
        Action::None
    }

    fn open(&mut self, overlay: Overlay) {
        self.overlay = Some(overlay);
        self.scrolled = 0;
    }

    fn press_in_overlay(&mut self, key: Key) -> Action {
        match key {
            Key::Up | Key::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scrolled += 1,
            Key::PageUp => self.scrolled = self.scrolled.saturating_sub(self.page),
            Key::PageDown => self.scrolled += self.page,
            Key::Home => self.scrolled = 0,
            // The number to its left or right is explained.
            Key::Left | Key::Right if self.overlay == Some(Overlay::Explanation) => {
                self.scrolled = 0;
                self.go(key, &[]);
            }
            _ => self.overlay = None,
        }
        Action::None
    }

    fn edit(&mut self, key: Key) {
        /// The longest filter.
        const MOST: usize = 64;
        match key {
            Key::Enter => self.edits_filter = false,
            Key::Escape => {
                self.edits_filter = false;
                self.filter.clear();
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Control('u') => self.filter.clear(),
            Key::Char(letter) if self.filter.chars().count() < MOST => self.filter.push(letter),
            _ => {}
        }
    }

    /// Sorts by the column under the cursor, the other way round if it is sorted by it.
    fn sort(&mut self) {
        let (sorted_by, is_reversed) = self.order();
        let tab = self.tab();
        tab.order = Some((tab.column, sorted_by == tab.column && !is_reversed));
    }

    fn go(&mut self, key: Key, rows: &[Row]) {
        let columns = self.view().columns().len();
        let page = self.page.max(1);
        let tab = self.tab();
        let at = tab.row_at;
        let last = rows.len().saturating_sub(1);
        let at = match key {
            Key::Left => {
                tab.column = tab.column.saturating_sub(1);
                return;
            }
            Key::Right => {
                tab.column = (tab.column + 1).min(columns - 1);
                return;
            }
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Down | Key::Char('j') => at + 1,
            Key::PageUp => at.saturating_sub(page),
            Key::PageDown => at + page,
            Key::Home | Key::Char('g') => 0,
            Key::End | Key::Char('G') => last,
            _ => return,
        };
        tab.row_at = at.min(last);
        // At the top the cursor stays there, whichever row is first.
        let row = rows.get(tab.row_at).filter(|_| tab.row_at > 0);
        tab.row = row.map(|row| row.key.clone());
    }
}

impl Tab {
    /// Puts the cursor onto its row, or stays where that was.
    fn follow(&mut self, rows: &[Row]) {
        let row = self.row.as_ref();
        let at = row.and_then(|key| rows.iter().position(|row| row.key == *key));
        self.row_at = match (at, row) {
            (Some(at), _) => at,
            (None, Some(_)) => self.row_at.min(rows.len().saturating_sub(1)),
            (None, None) => 0,
        };
    }

    /// Scrolls the row under the cursor into a page of so many.
    pub fn scroll(&mut self, page: usize) {
        let lowest = self.row_at.saturating_sub(page.saturating_sub(1));
        self.top = self.top.clamp(lowest, self.row_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(keys: &str) -> Vec<Row> {
        let row = |key: char| Row {
            key: key.into(),
            cells: Vec::new(),
        };
        keys.chars().map(row).collect()
    }

    #[test]
    fn digits_and_tabs_choose_views() {
        let mut state = State::default();
        for (key, view) in [
            (Key::Char('8'), View::Drops),
            (Key::Tab, View::Processes),
            (Key::Char('0'), View::Sockets),
            (Key::Tab, View::Devices),
            (Key::BackTab, View::Sockets),
            (Key::Char('1'), View::Devices),
        ] {
            assert_eq!(state.press(key, &[]), Action::None);
            assert_eq!(state.view(), view);
        }
    }

    #[test]
    fn the_cursor_follows_its_row_and_stays_where_a_row_vanished() {
        let mut state = State::default();
        state.press(Key::Down, &rows("abc"));
        state.tab().follow(&rows("xyab"));
        assert_eq!(state.tab().row_at, 3);
        state.tab().follow(&rows("xya"));
        assert_eq!(state.tab().row_at, 2);
        state.press(Key::Home, &rows("xya"));
        state.tab().follow(&rows("zxya"));
        assert_eq!(state.tab().row_at, 0, "at the top it stays");
        state.press(Key::End, &[]);
        state.tab().follow(&[]);
        assert_eq!(state.tab().row_at, 0);
    }

    #[test]
    fn the_row_under_the_cursor_is_on_the_page() {
        let mut tab = Tab {
            row_at: 9,
            ..Tab::default()
        };
        tab.scroll(4);
        assert_eq!(tab.top, 6);
        tab.row_at = 7;
        tab.scroll(4);
        assert_eq!(tab.top, 6, "no more than needed");
        tab.row_at = 0;
        tab.scroll(4);
        assert_eq!(tab.top, 0);
    }

    #[test]
    fn sorting_twice_by_a_column_reverses_it() {
        let mut state = State::default();
        for expected in [(1, false), (1, true), (1, false)] {
            state.tab().column = 1;
            state.press(Key::Char('s'), &[]);
            assert_eq!(state.order(), expected);
        }
    }

    #[test]
    fn a_filter_is_edited_and_dropped() {
        let mut state = State::default();
        for key in [
            Key::Char('/'),
            Key::Char('q'),
            Key::Char('x'),
            Key::Backspace,
            Key::Enter,
        ] {
            assert_eq!(state.press(key, &[]), Action::None, "{key:?}");
        }
        assert_eq!((state.filter.as_str(), state.edits_filter), ("q", false));
        state.press(Key::Escape, &[]);
        assert_eq!(state.filter, "");
        assert_eq!(state.press(Key::Char('q'), &[]), Action::Quit);
    }

    #[test]
    fn any_other_key_closes_what_lies_over_the_table() {
        let mut state = State::default();
        state.press(Key::Char('?'), &[]);
        assert_eq!(state.overlay, Some(Overlay::Help));
        assert_eq!(state.press(Key::Char('q'), &[]), Action::None);
        assert_eq!(state.overlay, None);
    }
}
