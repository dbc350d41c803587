//! Structures and constants that a BPF program shares with this one. A header of `bpf/` defines
//! them for C, a Rust module for Rust; loading compares the two by the header's types in the
//! compiled object (BTF).

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize as _};

/// The layout of a structure in memory.
#[derive(Debug)]
pub struct Layout {
    /// Its name in C.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields in their order, and the offset of each in bytes.
    pub fields: &'static [(&'static str, usize)],
}

/// The constants of an enumeration.
#[derive(Debug)]
pub struct Constants {
    /// The enumeration's name in C.
    pub name: &'static str,
    /// The name of each constant in C, and its value in Rust.
    pub values: &'static [(&'static str, usize)],
}

/// Declares structures as their headers do, with a [`Layout`] for each.
#[macro_export]
macro_rules! shared_structs {
    ($(
        $(#[$about:meta])*
        $visibility:vis struct $name:ident = $c_name:literal {
            $($(#[$about_field:meta])* $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::Immutable, zerocopy::IntoBytes, zerocopy::KnownLayout,
        )]
        #[repr(C)]
        $visibility struct $name {
            $($(#[$about_field])* pub $field: $type,)*
        }

        impl $name {
            /// The layout that C must have.
            pub const LAYOUT: $crate::bpf::layout::Layout = $crate::bpf::layout::Layout {
                name: $c_name,
                size: size_of::<Self>(),
                fields: &[$((stringify!($field), std::mem::offset_of!(Self, $field)),)*],
            };
        }
    )*};
}
pub use shared_structs;

impl Layout {
    /// Compares it with the structure in the types of a compiled object.
    ///
    /// # Errors
    ///
    /// Names the first difference.
    pub fn check(&self, types: &Btf<'_>) -> Result<()> {
        let name = self.name;
        let found: Struct<'_> = types
            .type_by_name(name)
            .with_context(|| format!("the BPF object has no struct {name}"))?;
        ensure!(
            found.size() == self.size,
            "struct {name} has {} bytes in C and {} in Rust",
            found.size(),
            self.size
        );
        let fields: Vec<(String, usize)> = found
            .iter()
            .map(|member| {
                let (MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) =
                    member.attr;
                (text_of(member.name), offset as usize / 8)
            })
            .collect();
        ensure!(
            fields.len() == self.fields.len(),
            "struct {name} has {} fields in C and {} in Rust",
            fields.len(),
            self.fields.len()
        );
        for ((c_name, c_offset), (rust_name, rust_offset)) in fields.iter().zip(self.fields) {
            ensure!(
                c_name == rust_name && c_offset == rust_offset,
                "struct {name} has {c_name} at byte {c_offset} in C where Rust has {rust_name} at \
                 {rust_offset}"
            );
        }
        Ok(())
    }
}

impl Constants {
    /// Compares them with the enumeration in the types of a compiled object.
    ///
    /// # Errors
    ///
    /// Names the first difference.
    pub fn check(&self, types: &Btf<'_>) -> Result<()> {
        let name = self.name;
        let found: Enum<'_> = types
            .type_by_name(name)
            .with_context(|| format!("the BPF object has no enum {name}"))?;
        let in_c: Vec<(String, i64)> = found
            .iter()
            .map(|member| (text_of(member.name), member.value))
            .collect();
        for (constant, rust_value) in self.values {
            let (_, c_value) = in_c
                .iter()
                .find(|(it, _)| it == constant)
                .with_context(|| format!("enum {name} has no {constant} in C"))?;
            ensure!(
                usize::try_from(*c_value) == Ok(*rust_value),
                "{constant} of enum {name} is {c_value} in C and {rust_value} in Rust"
            );
        }
        for (constant, _) in &in_c {
            ensure!(
                self.values.iter().any(|(it, _)| it == constant),
                "enum {name} has {constant} in C only"
            );
        }
        Ok(())
    }
}

fn text_of(name: Option<&OsStr>) -> String {
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// The text of a name that the kernel ends with 0.
pub fn text(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cost.bpf.o"));

    fn refused(check: impl Fn(&Btf<'_>) -> Result<()>) -> String {
        let types = Btf::from_raw("cost", OBJECT)
            .expect("an object")
            .expect("types");
        format!("{:#}", check(&types).expect_err("a difference"))
    }

    #[test]
    fn a_structure_that_differs_is_named() {
        let refused = |name, size, fields| {
            let layout = Layout { name, size, fields };
            refused(|types| layout.check(types))
        };
        assert_eq!(
            refused("irq_value", 16, &[("count", 0), ("ns", 8)]),
            "struct irq_value has ns at byte 0 in C where Rust has count at 0"
        );
        assert_eq!(
            refused("irq_value", 8, &[("ns", 0)]),
            "struct irq_value has 16 bytes in C and 8 in Rust"
        );
        assert_eq!(
            refused("irq_value", 16, &[("ns", 0)]),
            "struct irq_value has 2 fields in C and 1 in Rust"
        );
        let unknown = refused("no_such_struct", 0, &[]);
        assert_eq!(unknown, "the BPF object has no struct no_such_struct");
    }

    #[test]
    fn a_constant_that_differs_is_named() {
        let refused = |name, values| {
            let constants = Constants { name, values };
            refused(|types| constants.check(types))
        };
        assert_eq!(
            refused("vector", &[("LOCAL_TIMER", 7)]),
            "LOCAL_TIMER of enum vector is 0 in C and 7 in Rust"
        );
        assert_eq!(
            refused("vector", &[("LOCAL_TIMER", 0)]),
            "enum vector has RESCHEDULE in C only"
        );
        assert_eq!(
            refused("vector", &[("NMI", 0)]),
            "enum vector has no NMI in C"
        );
        let unknown = refused("no_such_enum", &[]);
        assert_eq!(unknown, "the BPF object has no enum no_such_enum");
    }

    #[test]
    fn names_end_where_the_kernel_ends_them() {
        assert_eq!(text(b"weir0\0\0\0\0\0\0\0\0\0\0x"), "weir0");
        assert_eq!(text(b"sixteen-letters!"), "sixteen-letters!");
    }
}
