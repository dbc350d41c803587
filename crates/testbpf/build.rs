//! Builds the BPF programs of the tests: no build of `weir` itself needs them.

#[path = "../weir/build/clang.rs"]
mod clang;

use clang::compile_bpf;

/// The programs of the switch, which each defect is built into.
const WEIR_BPF: &str = "../weir/bpf";

macro_rules! defects {
    ($($number:literal $name:literal: $_meaning:literal,)*) => {
        const DEFECTS: &[(u8, &str)] = &[$(($number, $name)),*];
    };
}
include!("src/defects.rs");

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["burn", "faults", "gaps"] {
        compile_bpf("bpf", name, name, &[]);
    }
    for (number, name) in DEFECTS {
        let object = format!("switch-{name}");
        compile_bpf(
            WEIR_BPF,
            "switch",
            &object,
            &[&format!("-DBROKEN={number}")],
        );
    }
}
