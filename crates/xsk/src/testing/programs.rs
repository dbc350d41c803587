//! XDP programs for tests, made of instructions so that no BPF compiler is needed
//! (`Documentation/bpf/standardization/instruction-set.rst`).

use crate::device::{AttachMode, Device};
use crate::error::{Error, ErrorKind, Result};
use crate::program::assembler::{Assembler, Label};
use crate::program::instruction::Condition::{Behind, HasAny, IsNot};
use crate::program::instruction::Register::{self, R0, R1, R2, R3, R4, R6};
use crate::program::instruction::Width::{U8, U32};
use crate::program::instruction::{
    DATA, DATA_END, REDIRECT_MAP, RX_QUEUE_INDEX, XDP_PASS, add, call, copy, exit, instruction,
    load, load_map, set,
};
use crate::program::{self, Filter, Program};
use crate::sys::{self, BPF_NAME_LEN, Instruction};
use hostnet::rtnetlink::Rtnetlink;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
    /// Moves the end of the packet by a number of bytes, if the device can.
    AdjustTail(i32),
}

/// Attaches such a program to `device`, with an XSKMAP of `slots`.
///
/// # Errors
///
/// Same as for the built-in program.
pub fn attach(device: &Device, mode: AttachMode, kind: Kind, slots: u32) -> Result<Program> {
    let map = sys::xskmap_create(NAME, slots)
        .map_err(|errno| Error::os(ErrorKind::Os, errno, "creating an XSKMAP"))?;
    let loaded = program::load(&assemble(kind, map.as_fd()), true, None)?;
    Program::attach_loaded(device, mode, Duration::ZERO, map, loaded.as_fd())
}

/// Loads such a program, named `xsk_test`, without attaching it.
///
/// # Errors
///
/// The kernel's.
pub fn load_kind(kind: Kind, map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    load_named(NAME, &assemble(kind, map))
}

/// Loads the built-in program for a filter, without attaching it. Also returns the number of its
/// instructions, of which an address of a map has two.
///
/// # Errors
///
/// The kernel's, and those of a filter that is not possible.
pub fn load_filter(filter: Option<&Filter>, map: BorrowedFd<'_>) -> Result<(OwnedFd, usize)> {
    filter.map_or(Ok(()), Filter::check)?;
    let instructions = program::redirect(map, filter, None);
    Ok((
        program::load(&instructions, false, None)?,
        instructions.len(),
    ))
}

/// Runs a program on a packet of at least 14 bytes, received on queue 0; returns its `xdp_action`.
///
/// # Errors
///
/// The kernel's.
pub fn run(program: BorrowedFd<'_>, packet: &[u8]) -> io::Result<u32> {
    sys::xdp_program_run(program, packet).map_err(Errno::into)
}

/// Loads a program that is for sockets, not for XDP.
///
/// # Errors
///
/// The kernel's.
pub fn load_socket_filter() -> io::Result<OwnedFd> {
    sys::socket_filter_load(NAME, &[set(R0, 0), exit()], c"GPL").map_err(Errno::into)
}

/// Creates an XSKMAP without a program.
///
/// # Errors
///
/// The kernel's.
pub fn xskmap(slots: u32) -> io::Result<OwnedFd> {
    sys::xskmap_create(NAME, slots).map_err(Errno::into)
}

/// Attaches a foreign program, named `not_of_xsk`, that passes every packet to the network stack. It
/// is detached when the returned link is closed.
///
/// # Errors
///
/// The kernel's.
pub fn attach_other(device: &Device, mode: AttachMode) -> io::Result<OwnedFd> {
    let program = load_other()?;
    sys::xdp_link_create(program.as_fd(), device.index, mode.flags()).map_err(Errno::into)
}

/// The same without a link, so that the program stays.
///
/// # Errors
///
/// The kernel's.
pub fn leave_other(device: &Device, mode: AttachMode) -> io::Result<()> {
    let program = load_other()?;
    let mut rtnetlink = Rtnetlink::open()?;
    Ok(rtnetlink.attach_xdp(device.index, program.as_fd(), mode.flags())?)
}

fn load_other() -> io::Result<OwnedFd> {
    let pass = [set(R0, XDP_PASS), exit()];
    load_named(*b"not_of_xsk\0\0\0\0\0\0", &pass)
}

/// Attaches a program that puts a VLAN tag on all that a device sends, beside its bytes, as a VLAN device does.
/// It is detached when the returned link is closed.
///
/// # Errors
///
/// The kernel's.
pub fn tag_sent(device: &Device, vlan: u16) -> io::Result<OwnedFd> {
    /// `bpf_skb_vlan_push`, and the EtherType in the packet's byte order.
    const VLAN_PUSH: i32 = 18;
    let protocol = u16::from_ne_bytes(0x8100_u16.to_be_bytes());
    let program = [
        set(R2, protocol.into()),
        set(R3, vlan.into()),
        call(VLAN_PUSH),
        set(R0, 0),
        exit(),
    ];
    sys::tcx_egress(NAME, &program, device.index).map_err(Errno::into)
}

/// Detaches a program, as `bpftool link detach` does.
///
/// # Errors
///
/// The kernel's.
pub fn detach(program: &Program) -> io::Result<()> {
    let link = program.link().ok_or(io::ErrorKind::Unsupported)?;
    sys::xdp_link_detach(link).map_err(Errno::into)
}

/// Puts the foreign program of [`attach_other`] in the place of a program, as whoever opens its link can.
///
/// # Errors
///
/// The kernel's.
pub fn replace(program: &Program) -> io::Result<()> {
    let link = program.link().ok_or(io::ErrorKind::Unsupported)?;
    sys::xdp_link_update(link, load_other()?.as_fd()).map_err(Errno::into)
}

fn load_named(name: [u8; BPF_NAME_LEN], instructions: &[Instruction]) -> io::Result<OwnedFd> {
    sys::xdp_program_load(name, instructions, false, None, c"GPL")
        .map_err(|(errno, _)| errno.into())
}

/// Name of the programs and maps.
const NAME: [u8; BPF_NAME_LEN] = *b"xsk_test\0\0\0\0\0\0\0\0";

const XDP_DROP: i32 = 1;
/// Offset in `struct xdp_md`.
const DATA_META: i16 = 8;

/// Helpers.
const ADJUST_META: i32 = 54;
const ADJUST_TAIL: i32 = 65;

/// Survives the calls of helpers.
const CONTEXT: Register = R6;

fn assemble(kind: Kind, map: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let drop = program.label();
    program.push(copy(CONTEXT, R1));
    slot_to_r2(&mut program, kind, drop);
    program.extend(load_map(R1, map));
    program.extend([set(R3, XDP_DROP), call(REDIRECT_MAP), exit()]);
    program.place(drop);
    program.extend([set(R0, XDP_DROP), exit()]);
    program.finish()
}

fn slot_to_r2(program: &mut Assembler, kind: Kind, drop: Label) {
    let sequence = i16::from(SEQUENCE_AT);
    match kind {
        Kind::ByDestination => {
            check_length(program, 14, drop);
            program.push(load(U8, R2, R2, 5));
            return;
        }
        Kind::DropHalf => {
            check_length(program, sequence + 8, drop);
            program.push(load(U8, R2, R2, sequence + 7));
            program.jump_if(R2, HasAny(1), drop);
        }
        Kind::Metadata => {
            program.extend([set(R2, -8), call(ADJUST_META)]);
            program.jump_if(R0, IsNot(0), drop);
            check_length(program, sequence + 8, drop);
            program.extend([load(U32, R3, CONTEXT, DATA_META), copy(R4, R3), add(R4, 8)]);
            program.jump_if(R4, Behind(R2), drop);
            program.extend([
                instruction(LOAD_U64, R4, R2, sequence, 0),
                instruction(STORE_U64, R3, R4, 0, 0),
            ]);
        }
        Kind::AdjustTail(delta) => {
            check_length(program, 14, drop);
            // Where that is refused, the packet arrives as it is.
            program.extend([set(R2, delta), call(ADJUST_TAIL)]);
        }
    }
    program.push(load(U32, R2, CONTEXT, RX_QUEUE_INDEX));
}

/// Loads the packet's start into R2; drops a packet of fewer than `len` bytes.
fn check_length(program: &mut Assembler, len: i16, drop: Label) {
    program.extend([
        load(U32, R2, CONTEXT, DATA),
        load(U32, R3, CONTEXT, DATA_END),
        copy(R4, R2),
        add(R4, len.into()),
    ]);
    program.jump_if(R4, Behind(R3), drop);
}

const LOAD_U64: u8 = 0x79;
const STORE_U64: u8 = 0x7b;
