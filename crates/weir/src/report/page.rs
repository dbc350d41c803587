//! Reports as self-contained HTML pages: no script, no font, no network.

use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// A whole page with this title and heading, around a body of HTML.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// A table of text.
pub fn table<'a>(
    class: &str,
    names: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut html = format!("<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>");
    for name in names {
        let _ = write!(html, "<th>{}</th>", escape(name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>");
    html
}

/// Text with HTML's special characters escaped.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escape("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;"
        );
    }
}
