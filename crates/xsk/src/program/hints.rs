//! What the driver knows of a received packet, written in front of it by the XDP program.

use super::assembler::{Assembler, Label};
use super::instruction::Condition::{Behind, IsNot};
use super::instruction::Register::{R0, R1, R2, R3, R4, R6, R7, R10};
use super::instruction::Width::{U32, U64};
use super::instruction::{
    ADJUST_META, DATA, DATA_META, add, call, call_kernel, copy, load, or, set, store,
};
use crate::error::{Error, ErrorKind, Result};
use crate::hints::{FUNCTIONS, HASH, HINTS_LEN, MAGIC, TIMESTAMP, VLAN_TAG};
use crate::sys::kernel_functions;

/// The kernel's functions that ask the driver (Linux 6.3, the last 6.8; `net/core/xdp.c`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hints {
    /// The device, to which the program is bound.
    pub(super) ifindex: u32,
    timestamp: Option<u32>,
    hash: Option<u32>,
    vlan_tag: Option<u32>,
}

/// The hints and what is in them, on the stack below R10: as [`crate::hints`] reads them.
const HINTS: i16 = -(8 + HINTS_LEN as i16);

impl Hints {
    /// The context, on the stack.
    pub(super) const CONTEXT: i16 = -8;

    /// Finds the functions.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for a kernel that has none of them.
    pub(crate) fn of_device(ifindex: u32) -> Result<Self> {
        let functions = kernel_functions(FUNCTIONS);
        let functions = functions.map_err(|why| Error::new(ErrorKind::Unsupported, why))?;
        let [timestamp, hash, vlan_tag] = functions;
        if hash.is_none() {
            let message = "this kernel has no functions for hints: Linux 6.3 is needed";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(Self {
            ifindex,
            timestamp,
            hash,
            vlan_tag,
        })
    }

    /// Keeps the context for [`write`](Self::write).
    pub(super) fn begin(program: &mut Assembler) {
        program.push(store(U64, R10, Self::CONTEXT, R1));
    }

    /// Writes the hints in front of the packet; not where the driver leaves no room there. It uses all
    /// registers.
    pub(super) fn write(self, program: &mut Assembler) {
        let none = program.label();
        program.extend([
            load(U64, R6, R10, Self::CONTEXT),
            copy(R1, R6),
            set(R2, -i32::from(HINTS_LEN)),
            call(ADJUST_META),
        ]);
        program.jump_if(R0, IsNot(0), none);
        program.push(set(R0, 0));
        for at in [0, 8, 16] {
            program.push(store(U64, R10, HINTS + at, R0));
        }
        program.push(set(R7, MAGIC.cast_signed()));
        // The second argument, and the third, are the places of the answers.
        ask(program, self.timestamp, &[0], TIMESTAMP);
        ask(program, self.hash, &[8, 12], HASH);
        ask(program, self.vlan_tag, &[16, 18], VLAN_TAG);
        program.push(store(U32, R10, HINTS + 20, R7));
        Self::copy_to_packet(program, none);
        program.place(none);
    }

    fn copy_to_packet(program: &mut Assembler, none: Label) {
        program.extend([
            load(U32, R1, R6, DATA_META),
            load(U32, R2, R6, DATA),
            copy(R3, R1),
            add(R3, HINTS_LEN.into()),
        ]);
        program.jump_if(R3, Behind(R2), none);
        for at in [0, 8, 16] {
            program.extend([load(U64, R4, R10, HINTS + at), store(U64, R1, at, R4)]);
        }
    }
}

/// Calls one of the functions with places in the hints, and notes in R7 whether it has answered.
fn ask(program: &mut Assembler, function: Option<u32>, places: &[i16], flag: u32) {
    let Some(function) = function else { return };
    let unknown = program.label();
    program.push(copy(R1, R6));
    for (register, place) in [R2, R3].into_iter().zip(places) {
        program.extend([copy(register, R10), add(register, (HINTS + place).into())]);
    }
    program.push(call_kernel(function));
    program.jump_if(R0, IsNot(0), unknown);
    program.push(or(R7, flag.cast_signed()));
    program.place(unknown);
}
