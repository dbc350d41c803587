//! Command lines as a shell reads them.

/// The command line of this process, quoted where needed.
pub fn own_command_line() -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| quote(&word.to_string_lossy()));
    std::iter::once("weir".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word, quoted where needed.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(quote("--engine=xsk,libxdp"), "--engine=xsk,libxdp");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }
}
