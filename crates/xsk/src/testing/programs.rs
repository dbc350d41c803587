//! XDP programs for tests, made of instructions so that no BPF compiler is needed
//! (`Documentation/bpf/standardization/instruction-set.rst`).

use crate::device::{AttachMode, Device};
use crate::error::{Error, ErrorKind, Result};
use crate::program::Program;
use crate::sys::{self, Instruction};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Offset of a test packet's sequence number, 8 bytes behind the Ethernet header.
pub const SEQUENCE_AT: u8 = 14;

/// The action of a program before it redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Redirects to the slot in the last byte of the destination MAC.
    ByDestination,
    /// Drops packets with an odd sequence number.
    DropHalf,
    /// Prepends the sequence number, 8 bytes, as metadata.
    Metadata,
    /// Moves the end of the packet by a number of bytes.
    AdjustTail(i32),
}

/// Attaches such a program to `device`, with an XSKMAP of `slots`.
///
/// # Errors
///
/// Same as for the built-in program.
pub fn attach(device: &Device, mode: AttachMode, kind: Kind, slots: u32) -> Result<Program> {
    let map = sys::xskmap_create(*b"xsk_test\0\0\0\0\0\0\0\0", slots)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "creating an XSKMAP"))?;
    let instructions = assemble(kind, map.as_fd());
    Program::attach_instructions(device, mode, Duration::ZERO, map, &instructions)
}

/// Creates an XSKMAP without a program.
///
/// # Errors
///
/// The kernel's.
pub fn xskmap(slots: u32) -> io::Result<OwnedFd> {
    sys::xskmap_create(*b"xsk_test\0\0\0\0\0\0\0\0", slots).map_err(Errno::into)
}

/// Attaches a foreign program, named `not_of_xsk`, that passes every packet to the network stack. It
/// is detached when the returned link is closed.
///
/// # Errors
///
/// The kernel's.
pub fn attach_other(device: &Device, mode: AttachMode) -> io::Result<OwnedFd> {
    let pass = [set(R0, XDP_PASS), exit()];
    let program = sys::xdp_program_load(*b"not_of_xsk\0\0\0\0\0\0", &pass, c"GPL")
        .map_err(|(errno, _)| io::Error::from(errno))?;
    let flags = match mode {
        AttachMode::Skb => 1 << 1,
        AttachMode::Driver | AttachMode::Hardware => 1 << 2,
    };
    sys::xdp_link_create(program.as_fd(), device.index, flags).map_err(Errno::into)
}

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
/// Callee-saved; has the context.
const R6: u8 = 6;

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const RX_QUEUE_INDEX: i16 = 16;

/// Helpers.
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
const ADJUST_TAIL: i32 = 65;

/// Placeholder for the distance to the drop at the program's end.
const TO_DROP: i16 = i16::MIN;

fn assemble(kind: Kind, map: BorrowedFd<'_>) -> Vec<Instruction> {
    let sequence = i16::from(SEQUENCE_AT);
    let mut program = vec![copy(R6, R1)];
    match kind {
        Kind::ByDestination => {
            program.extend(check_length(14));
            program.push(load_u8(R2, R2, 5));
        }
        Kind::DropHalf => {
            program.extend(check_length(sequence + 8));
            program.extend([
                load_u8(R2, R2, sequence + 7),
                op(BIT_AND, R2, 0, 0, 1),
                op(JUMP_IF_NOT, R2, 0, TO_DROP, 0),
                load_u32(R2, R6, RX_QUEUE_INDEX),
            ]);
        }
        Kind::Metadata => {
            program.extend([
                set(R2, -8),
                call(ADJUST_META),
                op(JUMP_IF_NOT, R0, 0, TO_DROP, 0),
            ]);
            program.extend(check_length(sequence + 8));
            program.extend([
                load_u32(R3, R6, DATA_META),
                copy(R4, R3),
                op(ADD, R4, 0, 0, 8),
                op(JUMP_IF_ABOVE, R4, R2, TO_DROP, 0),
                op(LOAD_U64, R4, R2, sequence, 0),
                op(STORE_U64, R3, R4, 0, 0),
                load_u32(R2, R6, RX_QUEUE_INDEX),
            ]);
        }
        Kind::AdjustTail(delta) => program.extend([
            set(R2, delta),
            call(ADJUST_TAIL),
            op(JUMP_IF_NOT, R0, 0, TO_DROP, 0),
            load_u32(R2, R6, RX_QUEUE_INDEX),
        ]),
    }
    // The slot is in R2.
    program.extend([
        op(LOAD_IMMEDIATE_64, R1, PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        op(0, 0, 0, 0, 0),
        set(R3, XDP_DROP),
        call(REDIRECT_MAP),
        exit(),
    ]);
    // A jump's offset counts from the instruction behind it.
    for (distance, instruction) in (0..).zip(program.iter_mut().rev()) {
        if instruction.offset == TO_DROP {
            instruction.offset = distance;
        }
    }
    program.extend([set(R0, XDP_DROP), exit()]);
    program
}

/// Loads the packet's start into R2; drops a packet of fewer than `len` bytes.
fn check_length(len: i16) -> [Instruction; 5] {
    [
        load_u32(R2, R6, DATA),
        load_u32(R3, R6, DATA_END),
        copy(R4, R2),
        op(ADD, R4, 0, 0, i32::from(len)),
        op(JUMP_IF_ABOVE, R4, R3, TO_DROP, 0),
    ]
}

const ADD: u8 = 0x07;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const JUMP_IF_ABOVE: u8 = 0x2d;
/// Jumps when the register differs from the immediate, here always zero.
const JUMP_IF_NOT: u8 = 0x55;
const BIT_AND: u8 = 0x57;
const LOAD_U64: u8 = 0x79;
const STORE_U64: u8 = 0x7b;
/// Source register of a load whose immediate is the file descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;

fn op(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    }
}

fn set(to: u8, value: i32) -> Instruction {
    op(0xb7, to, 0, 0, value)
}

fn copy(to: u8, from: u8) -> Instruction {
    op(0xbf, to, from, 0, 0)
}

fn load_u8(to: u8, from: u8, offset: i16) -> Instruction {
    op(0x71, to, from, offset, 0)
}

fn load_u32(to: u8, from: u8, offset: i16) -> Instruction {
    op(0x61, to, from, offset, 0)
}

fn call(helper: i32) -> Instruction {
    op(0x85, 0, 0, 0, helper)
}

fn exit() -> Instruction {
    op(0x95, 0, 0, 0, 0)
}
