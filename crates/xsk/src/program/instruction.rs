//! The BPF instructions of the redirect program (`include/uapi/linux/bpf.h`,
//! `Documentation/bpf/standardization/instruction-set.rst`).

use crate::sys::Instruction;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Offset of `rx_queue_index` in `struct xdp_md`.
pub(crate) const RX_QUEUE_INDEX: i16 = 16;
/// `enum xdp_action`.
pub(crate) const XDP_PASS: i32 = 2;
/// Number of the helper `bpf_redirect_map`.
pub(crate) const REDIRECT_MAP: i32 = 51;

/// A register; R1 has the context at the start, and R0 the return value.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
}

/// Any instruction by its parts.
pub(crate) fn instruction(
    code: u8,
    to: Register,
    from: Register,
    offset: i16,
    immediate: i32,
) -> Instruction {
    Instruction {
        code,
        registers: (from as u8) << 4 | to as u8,
        offset,
        immediate,
    }
}

/// `to = *(u32 *)(from + offset)`
pub(crate) fn load_u32(to: Register, from: Register, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}

/// `to = value`
pub(crate) fn set(to: Register, value: i32) -> Instruction {
    instruction(0xb7, to, Register::R0, 0, value)
}

/// `to = &map`, an instruction of two slots, with a file descriptor as its value: the source register
/// is `BPF_PSEUDO_MAP_FD`.
pub(crate) fn load_map(to: Register, map: BorrowedFd<'_>) -> [Instruction; 2] {
    [
        instruction(0x18, to, Register::R1, 0, map.as_raw_fd()),
        instruction(0, Register::R0, Register::R0, 0, 0),
    ]
}

/// Calls a helper.
pub(crate) fn call(helper: i32) -> Instruction {
    instruction(0x85, Register::R0, Register::R0, 0, helper)
}

/// `return r0`
pub(crate) fn exit() -> Instruction {
    instruction(0x95, Register::R0, Register::R0, 0, 0)
}
