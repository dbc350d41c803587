//! The BPF instructions of XDP programs (`include/uapi/linux/bpf.h`,
//! `Documentation/bpf/standardization/instruction-set.rst`).

use crate::sys::Instruction;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Offsets in `struct xdp_md`.
pub(crate) const DATA: i16 = 0;
pub(crate) const DATA_END: i16 = 4;
pub(crate) const DATA_META: i16 = 8;
pub(crate) const RX_QUEUE_INDEX: i16 = 16;
/// `enum xdp_action`.
pub(crate) const XDP_PASS: i32 = 2;
/// Numbers of the helpers `bpf_redirect_map` and `bpf_xdp_adjust_meta`.
pub(crate) const REDIRECT_MAP: i32 = 51;
pub(crate) const ADJUST_META: i32 = 54;

/// A register; R1 has the context at the start, and R0 the return value. A helper leaves R6 to R9
/// as they are. R10 has the end of the stack.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

use Register::{R0, R1};

/// The bytes that a load reads or a store writes; after a load, all others of the register are zero.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Width {
    U8 = 0x71,
    U16 = 0x69,
    U32 = 0x61,
    U64 = 0x79,
}

/// The condition of a jump, about one register.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Condition {
    /// The low 32 bits are this value (`BPF_JMP32`, 5.1).
    Is(u32),
    /// The low 32 bits differ from this value.
    IsNot(u32),
    /// The low 32 bits have one of these.
    HasAny(u32),
    /// All 64 bits, as an unsigned number, are above this one. With this the verifier
    /// bounds an offset.
    Above(i32),
    /// A pointer is behind that of another register. With this the verifier bounds a packet.
    Behind(Register),
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

/// `to = *(width *)(from + offset)`
pub(crate) fn load(width: Width, to: Register, from: Register, offset: i16) -> Instruction {
    instruction(width as u8, to, from, offset, 0)
}

/// `*(width *)(to + offset) = from`
pub(crate) fn store(width: Width, to: Register, offset: i16, from: Register) -> Instruction {
    // A store differs from a load by its class alone, `BPF_STX`.
    instruction(width as u8 | 2, to, from, offset, 0)
}

/// `to = value`
pub(crate) fn set(to: Register, value: i32) -> Instruction {
    instruction(0xb7, to, R0, 0, value)
}

/// `to = from`
pub(crate) fn copy(to: Register, from: Register) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

/// `to += value`
pub(crate) fn add(to: Register, value: i32) -> Instruction {
    instruction(0x07, to, R0, 0, value)
}

/// `to |= bits`
pub(crate) fn or(to: Register, bits: i32) -> Instruction {
    instruction(0x47, to, R0, 0, bits)
}

/// `to = (u32) to & mask`
pub(crate) fn and(to: Register, mask: u32) -> Instruction {
    instruction(0x54, to, R0, 0, mask.cast_signed())
}

/// `to = &map`, an instruction of two slots, with a file descriptor as its value: the source register
/// is `BPF_PSEUDO_MAP_FD`.
pub(crate) fn load_map(to: Register, map: BorrowedFd<'_>) -> [Instruction; 2] {
    [
        instruction(0x18, to, R1, 0, map.as_raw_fd()),
        instruction(0, R0, R0, 0, 0),
    ]
}

/// A jump over `offset` instructions.
pub(super) fn jump(offset: i16) -> Instruction {
    instruction(0x05, R0, R0, offset, 0)
}

/// A jump over `offset` instructions if the condition holds for a register.
pub(super) fn jump_if(register: Register, condition: Condition, offset: i16) -> Instruction {
    let (code, from, immediate) = match condition {
        Condition::Is(value) => (0x16, R0, value.cast_signed()),
        Condition::IsNot(value) => (0x56, R0, value.cast_signed()),
        Condition::HasAny(bits) => (0x46, R0, bits.cast_signed()),
        Condition::Above(value) => (0x25, R0, value),
        Condition::Behind(other) => (0x2d, other, 0),
    };
    instruction(code, register, from, offset, immediate)
}

/// Calls a helper.
pub(crate) fn call(helper: i32) -> Instruction {
    instruction(0x85, R0, R0, 0, helper)
}

/// Calls a function of the kernel, by its id in the kernel's BTF: the source register is
/// `BPF_PSEUDO_KFUNC_CALL`.
pub(crate) fn call_kernel(function: u32) -> Instruction {
    instruction(0x85, R0, Register::R2, 0, function.cast_signed())
}

/// `return r0`
pub(crate) fn exit() -> Instruction {
    instruction(0x95, R0, R0, 0, 0)
}
