//! BPF programs that serve the tests of `weir` alone: a known cost, losses made on purpose, and the programs of the
//! switch with a defect each. They are the bytes of object files, for `weir::bpf::Object`.

/// An object file of the output directory.
macro_rules! object {
    ($($part:literal),+) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $($part,)+ ".bpf.o"))
    };
}

/// `bpf/burn.bpf.c`: takes a set time for each packet.
pub static BURN: &[u8] = object!("burn");

/// `bpf/faults.bpf.c`: loses frames in several ways.
pub static FAULTS: &[u8] = object!("faults");

/// `bpf/gaps.bpf.c`: takes short gaps of a CPU, as a hypervisor does.
pub static GAPS: &[u8] = object!("gaps");

/// The programs of the switch with a defect, which the differential test must notice.
#[derive(Debug, Clone, Copy)]
pub struct Defect {
    /// Its name.
    pub name: &'static str,
    /// What these programs do wrong.
    pub meaning: &'static str,
    /// `switch.bpf.c` of `weir`, compiled with it.
    pub object: &'static [u8],
}

macro_rules! defects {
    ($($_number:literal $name:literal: $meaning:literal,)*) => {
        /// Each defect of the switch.
        pub static DEFECTS: &[Defect] = &[$(Defect {
            name: $name,
            meaning: $meaning,
            object: object!("switch-", $name),
        }),*];
    };
}
include!("defects.rs");
