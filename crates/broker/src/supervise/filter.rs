//! The seccomp filter that notifies the calls of a tenant's handlers.
//!
//! It is assembled here: the crate `seccompiler` kills callers of a foreign architecture, which this
//! filter only refuses, knows no notification and no x32.

use super::rule::{Action, Condition, Rule};
use libc::sock_filter;
use rustix::io::Errno;

/// `AUDIT_ARCH_…` of this program (`include/uapi/linux/audit.h`), of the calls that are supervised.
pub const ARCH: u32 = MACHINE.0;

/// The same as the OCI runtime specification has it.
pub const ARCH_NAME: &str = MACHINE.1;

const MACHINE: (u32, &str) = if cfg!(target_arch = "x86_64") {
    (0xc000_003e, "SCMP_ARCH_X86_64")
} else if cfg!(target_arch = "aarch64") {
    (0xc000_00b7, "SCMP_ARCH_AARCH64")
} else if cfg!(target_arch = "riscv64") {
    (0xc000_00f3, "SCMP_ARCH_RISCV64")
} else {
    panic!("the seccomp filters are for x86_64, aarch64 and riscv64")
};

/// In the number of an x32 call, on x86-64 only.
pub const X32: u32 = 0x4000_0000;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// A jump to the end of its rule, where the next begins. No rule is that long.
const NEXT_RULE: u8 = u8::MAX;

/// The filter. A call of a foreign architecture or of x32 fails with `ENOSYS`: its number means
/// another call, and its arguments are laid out otherwise.
pub fn program<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Vec<sock_filter> {
    let not_implemented = fail(Errno::NOSYS);
    let mut program = vec![
        statement(LOAD, ARCHITECTURE),
        jump(IF_EQUAL, ARCH, 1, 0),
        statement(RETURN, not_implemented),
    ];
    if cfg!(target_arch = "x86_64") {
        program.extend([
            statement(LOAD, NUMBER),
            jump(IF_AT_LEAST, X32, 0, 1),
            statement(RETURN, not_implemented),
        ]);
    }
    program.extend(rules.into_iter().flat_map(apply));
    program.push(statement(RETURN, libc::SECCOMP_RET_ALLOW));
    program
}

fn fail(errno: Errno) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.raw_os_error() as u32
}

/// The instructions of a rule. The number is loaded anew: conditions have overwritten it.
fn apply(rule: &Rule) -> Vec<sock_filter> {
    let mut block = vec![
        statement(LOAD, NUMBER),
        jump(IF_EQUAL, rule.call as u32, 0, NEXT_RULE),
    ];
    for condition in rule.conditions {
        test(*condition, &mut block);
    }
    let action = match rule.action {
        Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
        Action::Fail(errno) => fail(errno),
    };
    block.push(statement(RETURN, action));
    let len = block.len();
    for (at, instruction) in block.iter_mut().enumerate() {
        if instruction.jf == NEXT_RULE {
            instruction.jf = (len - at - 1) as u8;
        }
    }
    block
}

fn test(condition: Condition, block: &mut Vec<sock_filter>) {
    match condition {
        Condition::Masked {
            argument,
            mask,
            value,
        } => {
            block.push(statement(LOAD, lower(argument)));
            if mask != u32::MAX {
                block.push(statement(AND, mask));
            }
            block.push(jump(IF_EQUAL, value, 0, NEXT_RULE));
        }
        Condition::AtLeast { argument, value } => {
            let (upper, below) = ((value >> 32) as u32, value as u32);
            block.extend([
                statement(LOAD, lower(argument) + 4),
                jump(IF_GREATER, upper, 3, 0),
                jump(IF_EQUAL, upper, 0, NEXT_RULE),
                statement(LOAD, lower(argument)),
                jump(IF_AT_LEAST, below, 0, NEXT_RULE),
            ]);
        }
    }
}

/// Offset of an argument's lower half.
fn lower(argument: u8) -> u32 {
    const { assert!(cfg!(target_endian = "little")) };
    ARGUMENTS + 8 * u32::from(argument)
}

fn statement(code: u16, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    /// Runs a filter as the kernel does.
    fn run(program: &[sock_filter], arch: u32, number: u32, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend([number.to_le_bytes(), arch.to_le_bytes()].concat());
        data.extend([0; 8]);
        data.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
        let (mut at, mut value) = (0, 0_u32);
        loop {
            let now = program[at];
            at += 1;
            let holds = match now.code {
                LOAD => {
                    let word = &data[now.k as usize..][..4];
                    value = u32::from_le_bytes(word.try_into().expect("four bytes"));
                    continue;
                }
                AND => {
                    value &= now.k;
                    continue;
                }
                RETURN => return now.k,
                IF_EQUAL => value == now.k,
                IF_GREATER => value > now.k,
                IF_AT_LEAST => value >= now.k,
                code => panic!("instruction {code:#x}"),
            };
            at += usize::from(if holds { now.jt } else { now.jf });
        }
    }

    const RULES: [Rule; 5] = [
        Rule::always(10, "ten"),
        Rule::when(
            20,
            "twenty",
            &[
                Condition::int(0, -100),
                Condition::bits(1, 0o170_000, 0o20_000),
            ],
        ),
        Rule::when(30, "thirty", &[Condition::at_least(2, 32)]),
        Rule::when(20, "twenty", &[Condition::at_least(5, 0x2_0000_0003)]),
        Rule::fails(40, "forty", Errno::NOSYS),
    ];

    fn verdict(number: u32, args: [u64; 6]) -> u32 {
        run(&program(&RULES), ARCH, number, args)
    }

    #[test]
    fn only_calls_that_meet_all_conditions_of_a_rule_are_notified() {
        assert_eq!(verdict(10, [0; 6]), NOTIFY);
        assert_eq!(verdict(11, [0; 6]), ALLOW);
        assert_eq!(verdict(40, [0; 6]), REFUSE);
        let char_device = 0o20_666;
        // The kernel sees an int: the upper half does not matter.
        for directory in [0xffff_ff9c, 0x1234_5678_ffff_ff9c] {
            assert_eq!(verdict(20, [directory, char_device, 0, 0, 0, 0]), NOTIFY);
        }
        assert_eq!(verdict(20, [3, char_device, 0, 0, 0, 0]), ALLOW);
        assert_eq!(verdict(20, [0xffff_ff9c, 0o60_666, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn sizes_are_compared_with_all_their_bits() {
        for (size, expected) in [
            (0, ALLOW),
            (31, ALLOW),
            (32, NOTIFY),
            (33, NOTIFY),
            (1 << 32, NOTIFY),
        ] {
            assert_eq!(verdict(30, [0, 0, size, 0, 0, 0]), expected, "{size}");
        }
        for (size, expected) in [
            (0x2_0000_0002, ALLOW),
            (0x1_ffff_ffff, ALLOW),
            (0x2_0000_0003, NOTIFY),
            (0x3_0000_0000, NOTIFY),
        ] {
            assert_eq!(verdict(20, [0, 0, 0, 0, 0, size]), expected, "{size:#x}");
        }
    }

    /// The kernel's number is the machine of an ELF program, with flags for 64 bits and little endian.
    #[test]
    fn the_architecture_is_this_programs() {
        use std::io::Read as _;
        let mut header = [0; 20];
        let mut program = std::fs::File::open("/proc/self/exe").expect("this program");
        program.read_exact(&mut header).expect("an ELF header");
        let machine = u16::from_le_bytes([header[18], header[19]]);
        assert_eq!(ARCH, 0xc000_0000 | u32::from(machine));
        let name = std::env::consts::ARCH.to_uppercase();
        assert_eq!(ARCH_NAME, format!("SCMP_ARCH_{name}"));
    }

    #[test]
    fn foreign_architectures_and_x32_are_refused() {
        let program = program(&RULES);
        let i386 = 0x4000_0003;
        assert_eq!(run(&program, i386, 10, [0; 6]), REFUSE);
        assert_eq!(run(&program, i386, 1, [0; 6]), REFUSE);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(verdict(X32 + 10, [0; 6]), REFUSE);
            assert_eq!(verdict(X32 + 1, [0; 6]), REFUSE);
        }
    }
}
