//! Structures that a BPF program and this one share, declared here and in a header of `bpf/`, and
//! compared with the types that clang made of the header when the program is loaded.

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize as _};

/// How a structure lies in memory.
#[derive(Debug)]
pub struct Layout {
    /// Its name in C.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields in their order, and the offset of each in bytes.
    pub fields: &'static [(&'static str, usize)],
}

/// Declares structures as their headers do, with a [`Layout`] for each.
macro_rules! shared_structs {
    ($(
        $(#[$about:meta])*
        struct $name:ident = $c_name:literal {
            $($(#[$about_field:meta])* $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq,
            serde::Serialize,
            zerocopy::FromBytes, zerocopy::Immutable, zerocopy::IntoBytes, zerocopy::KnownLayout,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$about_field])* pub $field: $type,)*
        }

        impl $name {
            /// As C has to have it.
            pub const LAYOUT: $crate::bpf::layout::Layout = $crate::bpf::layout::Layout {
                name: $c_name,
                size: size_of::<Self>(),
                fields: &[$((stringify!($field), std::mem::offset_of!(Self, $field)),)*],
            };
        }
    )*};
}
pub(crate) use shared_structs;

impl Layout {
    /// Compares it with the structure that the types of a compiled program describe.
    ///
    /// # Errors
    ///
    /// Names the first difference: the header and the Rust structure are not of one build.
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
                let name = member.name.map(|name| name.to_string_lossy().into_owned());
                let (MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) =
                    member.attr;
                (name.unwrap_or_default(), offset as usize / 8)
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
