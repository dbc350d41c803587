//! Sets of CPUs, as the kernel writes them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use crate::cpulist::CpuList;

/// The numbers of some CPUs.
pub type Cpus = BTreeSet<usize>;

/// The CPUs of a mask such as `00000000,00000003`, its last word first.
pub fn from_mask(text: &str) -> Result<Cpus> {
    let mut cpus = Cpus::new();
    for (index, word) in text.trim().rsplit(',').enumerate() {
        let word = u32::from_str_radix(word, 16)
            .with_context(|| format!("not a mask of CPUs: {text:?}"))?;
        cpus.extend(
            (0..32)
                .filter(|bit| word >> bit & 1 == 1)
                .map(|bit| index * 32 + bit),
        );
    }
    Ok(cpus)
}

/// The CPUs of a list such as `0-3,8`.
pub fn from_list(text: &str) -> Result<Cpus> {
    Ok(text
        .trim()
        .parse::<CpuList>()?
        .as_slice()
        .iter()
        .copied()
        .collect())
}

/// The list of these CPUs.
pub fn list(cpus: &Cpus) -> CpuList {
    CpuList::new(cpus.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() -> Result<()> {
        assert_eq!(from_mask("0")?, Cpus::new());
        assert_eq!(from_mask("3\n")?, Cpus::from([0, 1]));
        assert_eq!(
            from_mask("80000000,00000001,00000000")?,
            Cpus::from([32, 95])
        );
        assert!(from_mask("").is_err());
        assert!(from_mask("x").is_err());
        Ok(())
    }
}
