//! Programs that may be loaded.

use super::sys::ProgramType;
use sha2::{Digest as _, Sha256};

/// SHA-256 of a program's instructions, the descriptors of maps in them being zero.
pub type Hash = [u8; 32];

/// A program that every tenant may load.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) program_type: ProgramType,
    hash: &'static str,
    /// Its function and origin.
    pub(super) source: &'static str,
}

/// Each of the XDP programs redirects the packets of a queue to the socket that an XSKMAP has for it,
/// which the kernel does only for a socket of that device and queue, and passes all others.
pub(super) const KNOWN: &[Known] = &[
    Known {
        program_type: ProgramType::Xdp,
        hash: "4ae5174e0d4b6b6e72c4eb49230c0d0889ab1f80a6e42775d7a7c0fc6f868d7c",
        source: "xsk_def_xdp_prog.o of libxdp 1.3.1, in Debian 12",
    },
    Known {
        program_type: ProgramType::Xdp,
        hash: "dc1bcff258c012445ae740b0ebba01c7efd1418245e86121b6d80e82960d3c71",
        source: "xsk_def_xdp_prog_5.3.o of libxdp 1.3.1, in Debian 12",
    },
    Known {
        program_type: ProgramType::Xdp,
        hash: "548a968b70885879d0baeddf60fa89b594039dc914269abeccd3cbf95c141c39",
        source: "xsk_load_xdp_prog of libbpf 0.3 to 0.8, and the crate xsk without a filter",
    },
    Known {
        program_type: ProgramType::Xdp,
        hash: "9b8b34cd23c735a73037b82670b4587ce51efdef898ed4401a4db41bae2efec7",
        source: "xsk_load_xdp_prog of libbpf 0.3 to 0.8, for kernels before 5.3",
    },
    Known {
        program_type: ProgramType::Xdp,
        hash: "3af9fe2d2b186c07ff1ff7d84ec224d85e02acb62c9f2eca42e4ecda7bec313c",
        source: "a probe of libxdp for flags of redirections (xsk_check_redirect_flags)",
    },
    Known {
        program_type: ProgramType::SocketFilter,
        hash: "59f4a931744dcdc62944a018ed3990e666ec6444616418d3b09a82dc5c753d52",
        source: "`return 0`, a probe of libbpf",
    },
    Known {
        program_type: ProgramType::SocketFilter,
        hash: "62efe59b7d4f5ea1e6a1c01a78f0fbbb112380f25026afe08dc8f4b90192453f",
        source: "`return ktime_get_coarse_ns()`, a probe of libbpf (probe_memcg_account)",
    },
    Known {
        program_type: ProgramType::SocketFilter,
        hash: "4555525088775ce672ec36f85f5b89bd53015a9db897d8b1b0bd08b593697eaf",
        source: "a probe of libbpf for variables (probe_kern_global_data)",
    },
];

/// The size of an instruction.
pub(super) const INSTRUCTION: usize = 8;
/// `BPF_LD | BPF_DW | BPF_IMM`, an instruction of two slots.
const LOAD_WIDE: u8 = 0x18;
/// Source registers of such an instruction: the value is a descriptor of a map, or an address in it.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// Where the instructions begin that load a map by its descriptor. `None` when the program refers to
/// anything else by a wide load, or is cut short.
pub(super) fn map_descriptors(instructions: &[u8]) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    let mut at = 0;
    while at < instructions.len() {
        let instruction = instructions.get(at..at + INSTRUCTION)?;
        let (code, registers) = (*instruction.first()?, *instruction.get(1)?);
        if code != LOAD_WIDE {
            at += INSTRUCTION;
            continue;
        }
        match registers >> 4 {
            0 => {}
            PSEUDO_MAP_FD | PSEUDO_MAP_VALUE => places.push(at),
            _ => return None,
        }
        at += 2 * INSTRUCTION;
    }
    (at == instructions.len()).then_some(places)
}

/// The hash of instructions that have no descriptors.
pub(super) fn hash(instructions: &[u8]) -> Hash {
    Sha256::digest(instructions).into()
}

/// The program of a hash.
pub(super) fn find(hash: &Hash, program_type: ProgramType) -> Option<&'static Known> {
    let hash = hex(hash);
    let mut known = KNOWN.iter();
    known.find(|known| known.program_type == program_type && known.hash == hash)
}

/// A hash as the policy has it.
pub(super) fn hex(hash: &Hash) -> String {
    use std::fmt::Write as _;
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
