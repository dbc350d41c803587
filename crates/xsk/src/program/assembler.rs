//! BPF programs with labels as the targets of jumps.

use super::instruction::{Condition, Register, jump, jump_if};
use crate::sys::Instruction;

/// A place in a program to jump to, later than the jumps: no XDP program of ours has a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label(usize);

/// A program that grows.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// Jumps without their offset yet, each with the number of its label.
    jumps: Vec<(usize, usize)>,
    labels: usize,
}

impl Assembler {
    /// A label, to be placed once.
    pub(crate) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Places a label before the next instruction, and completes the jumps to it.
    pub(crate) fn place(&mut self, label: Label) {
        let here = self.instructions.len();
        let instructions = &mut self.instructions;
        self.jumps.retain(|&(at, target)| {
            if target == label.0 {
                // It counts from the instruction behind the jump.
                let distance = here - at - 1;
                instructions[at].offset = i16::try_from(distance).expect("programs are short");
            }
            target != label.0
        });
    }

    pub(crate) fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    pub(crate) fn extend(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.instructions.extend(instructions);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to.0));
        self.push(jump(0));
    }

    pub(crate) fn jump_if(&mut self, register: Register, condition: Condition, to: Label) {
        self.jumps.push((self.instructions.len(), to.0));
        self.push(jump_if(register, condition, 0));
    }

    /// The program, in which all labels have their place.
    pub(crate) fn finish(self) -> Vec<Instruction> {
        assert!(self.jumps.is_empty(), "a jump has no target");
        self.instructions
    }
}
