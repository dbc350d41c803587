//! The types of the running kernel (BTF): names of its constants, and its tracepoints.

use anyhow::{Context as _, Result};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Typedef};

/// The types of the running kernel.
#[derive(Debug)]
pub struct KernelTypes(Btf<'static>);

impl KernelTypes {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// For a kernel without `CONFIG_DEBUG_INFO_BTF`.
    pub fn read() -> Result<Self> {
        Btf::from_vmlinux().map(Self).context(
            "this kernel has no types for BPF (CONFIG_DEBUG_INFO_BTF, /sys/kernel/btf/vmlinux)",
        )
    }

    /// The constants of an enumeration; none if the kernel does not have it.
    pub fn constants(&self, name: &str) -> Option<Vec<(String, i64)>> {
        let enumeration: Enum<'_> = self.0.type_by_name(name)?;
        let constants = enumeration.iter().filter_map(|constant| {
            let name = constant.name?.to_string_lossy().into_owned();
            Some((name, constant.value))
        });
        Some(constants.collect())
    }

    /// The number of a tracepoint's arguments; none if the kernel does not have it.
    pub fn tracepoint_arguments(&self, name: &str) -> Option<usize> {
        let name = format!("btf_trace_{name}");
        let definition: Typedef<'_> = self.0.type_by_name(&name)?;
        let pointer = Ptr::try_from(definition.next_type()?).ok()?;
        let function = FuncProto::try_from(pointer.next_type()?).ok()?;
        // The first is for the tracepoint's own use.
        function.iter().len().checked_sub(1)
    }
}
