//! A value that is read from the host at most once.

use std::sync::OnceLock;

use anyhow::{Error, Result, anyhow};

/// A value that is read at most once; an error is kept too.
#[derive(Debug)]
pub struct Cached<T>(OnceLock<Result<T, String>>);

impl<T> Cached<T> {
    /// A value that is not read yet.
    pub const fn empty() -> Self {
        Self(OnceLock::new())
    }

    /// The value, which the first call reads.
    pub fn get<E: Into<Error>>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<&T> {
        let read = || read().map_err(|error| format!("{:#}", error.into()));
        self.0
            .get_or_init(read)
            .as_ref()
            .map_err(|reason| anyhow!("{reason}"))
    }
}

impl<T> From<T> for Cached<T> {
    fn from(value: T) -> Self {
        Self(OnceLock::from(Ok(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_read_counts() -> Result<()> {
        let cached = Cached::empty();
        assert_eq!(cached.get(|| anyhow::Ok(1))?, &1);
        assert_eq!(cached.get(|| anyhow::Ok(2))?, &1);
        assert_eq!(Cached::from(3).get(|| anyhow::Ok(4))?, &3);
        let failed: Cached<u32> = Cached::empty();
        assert!(failed.get(|| Err(anyhow!("no permission"))).is_err());
        let again = failed.get(|| anyhow::Ok(1)).expect_err("the first error");
        assert_eq!(again.to_string(), "no permission");
        Ok(())
    }
}
