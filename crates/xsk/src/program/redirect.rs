//! The built-in program as instructions.
//!
//! Without a filter it is `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`, whose last
//! argument is the action when the queue has no socket (5.3). A filter precedes it: from the
//! outer header to the inner, each part only where a rule needs it, and each read behind a check of the
//! packet's length. It has no loop, and no call.

use super::assembler::{Assembler, Label};
use super::filter::{Filter, Prefix, Rule, Subject};
use super::hints::Hints;
use super::instruction::Condition::{Above, Behind, HasAny, Is, IsNot};
use super::instruction::Register::{self, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use super::instruction::Width::{U8, U16, U32, U64};
use super::instruction::{
    DATA, DATA_END, REDIRECT_MAP, RX_QUEUE_INDEX, XDP_PASS, add, and, call, copy, exit, load,
    load_map, set,
};
use crate::sys::Instruction;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// The queue, the second argument of the call.
const QUEUE: Register = R2;
/// The first byte behind the Ethernet header and its tag.
const NETWORK: Register = R3;
const SCRATCH: Register = R4;
const END: Register = R5;
/// Not needed any more where the source port is.
const ETHER_TYPE: Register = R6;
const SOURCE_PORT: Register = R6;
/// The first byte behind the IP header.
const TRANSPORT: Register = R7;
const OPTIONS_LEN: Register = R8;
/// Not known yet where the length of the options, in words, is needed.
const DESTINATION_PORT: Register = R8;
const PROTOCOL: Register = R9;

const ETHERNET_LEN: i32 = 14;
const VLAN_TAG_LEN: i32 = 4;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
/// Offset of the EtherType from the header behind it, with a tag and without.
const ETHER_TYPE_AT: i16 = -2;
/// More fragments follow, or this is not the first.
const FRAGMENT: u16 = 0x3fff;

/// An IP version's headers, by offsets from the first byte.
struct Version {
    ether_type: u16,
    is_ipv4: bool,
    /// Without options or extension headers.
    header_len: i32,
    protocol: i16,
    source: i16,
    destination: i16,
}

const IPV4: Version = Version {
    ether_type: 0x0800,
    is_ipv4: true,
    header_len: 20,
    protocol: 9,
    source: 12,
    destination: 16,
};

const IPV6: Version = Version {
    ether_type: 0x86dd,
    is_ipv4: false,
    header_len: 40,
    protocol: 6,
    source: 8,
    destination: 24,
};

/// The program, which redirects to `map` the packets of the filter, or all, with their hints.
pub(crate) fn redirect(
    map: BorrowedFd<'_>,
    filter: Option<&Filter>,
    hints: Option<Hints>,
) -> Vec<Instruction> {
    let mut program = begin(hints);
    if let Some(filter) = filter {
        take_filtered(&mut program, filter);
    }
    redirect_all(&mut program, map, hints);
    program.finish()
}

fn begin(hints: Option<Hints>) -> Assembler {
    let mut program = Assembler::default();
    if hints.is_some() {
        Hints::begin(&mut program);
    }
    program.push(load(U32, QUEUE, R1, RX_QUEUE_INDEX));
    program
}

/// The program, which redirects to `map` the packets of a queue's filter; all those of a queue
/// without one.
pub(crate) fn redirect_by_queue(
    map: BorrowedFd<'_>,
    filters: &BTreeMap<u32, Filter>,
    hints: Option<Hints>,
) -> Vec<Instruction> {
    let mut program = begin(hints);
    for (&queue, filter) in filters {
        let other = program.label();
        program.jump_if(QUEUE, IsNot(queue), other);
        take_filtered(&mut program, filter);
        redirect_all(&mut program, map, hints);
        program.place(other);
    }
    redirect_all(&mut program, map, hints);
    program.finish()
}

/// Passes the packets that the filter does not take, and goes on with those that it takes.
fn take_filtered(program: &mut Assembler, filter: &Filter) {
    let mut compiler = Compiler::new(program, &filter.rules);
    compiler.ethernet();
    compiler.network(&IPV4);
    compiler.network(&IPV6);
    compiler.end();
}

fn redirect_all(program: &mut Assembler, map: BorrowedFd<'_>, hints: Option<Hints>) {
    if let Some(hints) = hints {
        hints.write(program);
        program.push(load(U64, R6, R10, Hints::CONTEXT));
        program.push(load(U32, QUEUE, R6, RX_QUEUE_INDEX));
    }
    program.extend(load_map(R1, map));
    program.extend([set(R3, XDP_PASS), call(REDIRECT_MAP), exit()]);
}

/// A value of the packet, as a load into a register leaves it.
fn be16(value: u16) -> u32 {
    u32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

struct Compiler<'c> {
    program: &'c mut Assembler,
    rules: &'c [Rule],
    /// The redirection.
    take: Label,
    /// The return to the network stack.
    pass: Label,
}

impl<'c> Compiler<'c> {
    fn new(program: &'c mut Assembler, rules: &'c [Rule]) -> Self {
        let (take, pass) = (program.label(), program.label());
        Self {
            program,
            rules,
            take,
            pass,
        }
    }

    /// Finds the EtherType and the header behind it, and takes by EtherType.
    fn ethernet(&mut self) {
        let (tagged, found) = (self.program.label(), self.program.label());
        self.program.extend([
            load(U32, NETWORK, R1, DATA),
            load(U32, END, R1, DATA_END),
            add(NETWORK, ETHERNET_LEN),
        ]);
        self.program.jump_if(NETWORK, Behind(END), self.pass);
        self.load_ether_type();
        let (single, service) = (be16(ETH_P_8021Q), be16(ETH_P_8021AD));
        self.program.jump_if(ETHER_TYPE, Is(single), tagged);
        self.program.jump_if(ETHER_TYPE, IsNot(service), found);
        self.program.place(tagged);
        self.program.push(add(NETWORK, VLAN_TAG_LEN));
        self.program.jump_if(NETWORK, Behind(END), self.pass);
        self.load_ether_type();
        self.program.place(found);
        for rule in self.rules {
            if let Subject::EtherType(ether_type) = rule.subject {
                let this = Is(be16(ether_type));
                self.program.jump_if(ETHER_TYPE, this, self.take);
            }
        }
    }

    fn load_ether_type(&mut self) {
        let load = load(U16, ETHER_TYPE, NETWORK, ETHER_TYPE_AT);
        self.program.push(load);
    }

    /// Takes packets of an IP version by the rules that allow it.
    fn network(&mut self, version: &Version) {
        let rules = self.rules.iter().filter(|rule| version.may_match(rule));
        let (with_ports, without): (Vec<&Rule>, Vec<&Rule>) =
            rules.partition(|rule| rule.has_ports());
        if with_ports.is_empty() && without.is_empty() {
            return;
        }
        let other = self.program.label();
        let this = be16(version.ether_type);
        self.program.jump_if(ETHER_TYPE, IsNot(this), other);
        self.program.push(copy(TRANSPORT, NETWORK));
        self.program.push(add(TRANSPORT, version.header_len));
        self.program.jump_if(TRANSPORT, Behind(END), self.pass);
        self.check_version(version);
        self.program
            .push(load(U8, PROTOCOL, NETWORK, version.protocol));
        if without.iter().any(|rule| rule.is_any_ip()) {
            // The verifier refuses instructions that nothing reaches.
            self.program.jump(self.take);
        } else {
            self.rules(version, &without, &with_ports);
        }
        self.program.place(other);
    }

    /// Takes a packet by one of the rules, or passes it.
    fn rules(&mut self, version: &Version, without_ports: &[&Rule], with_ports: &[&Rule]) {
        for rule in without_ports {
            self.rule(version, rule);
        }
        if !with_ports.is_empty() {
            self.ports(version);
        }
        for rule in with_ports {
            self.rule(version, rule);
        }
        self.program.jump(self.pass);
    }

    /// Passes a packet whose header is not of the version that its EtherType says.
    fn check_version(&mut self, version: &Version) {
        let pass = self.pass;
        self.program.push(load(U8, OPTIONS_LEN, NETWORK, 0));
        if version.is_ipv4 {
            // Version 4 and a header of 5 to 15 words, in one comparison.
            self.program.push(add(OPTIONS_LEN, -0x45));
            self.program.jump_if(OPTIONS_LEN, Above(10), pass);
        } else {
            self.program.push(and(OPTIONS_LEN, 0xf0));
            self.program.jump_if(OPTIONS_LEN, IsNot(0x60), pass);
        }
    }

    /// Loads the ports of whatever the protocol is; passes a packet without.
    fn ports(&mut self, version: &Version) {
        if version.is_ipv4 {
            self.program.push(load(U16, SCRATCH, NETWORK, 6));
            let fragment = HasAny(be16(FRAGMENT));
            self.program.jump_if(SCRATCH, fragment, self.pass);
            self.skip_options();
        }
        self.program.push(copy(SCRATCH, TRANSPORT));
        self.program.push(add(SCRATCH, 4));
        self.program.jump_if(SCRATCH, Behind(END), self.pass);
        self.program.extend([
            load(U16, SOURCE_PORT, TRANSPORT, 0),
            load(U16, DESTINATION_PORT, TRANSPORT, 2),
        ]);
    }

    /// Moves behind the options of IPv4, of 0 to 10 words, by constants: the verifier adds a variable to
    /// a packet's pointer only for a process with `CAP_PERFMON`.
    fn skip_options(&mut self) {
        let (options, done) = (self.program.label(), self.program.label());
        self.program.jump_if(OPTIONS_LEN, HasAny(0xf), options);
        self.program.jump(done);
        self.program.place(options);
        for words in [8_u8, 4, 2, 1] {
            // Without them first, whose state then is the verifier's for the others as well.
            let (these, others) = (self.program.label(), self.program.label());
            let are_there = HasAny(words.into());
            self.program.jump_if(OPTIONS_LEN, are_there, these);
            self.program.jump(others);
            self.program.place(these);
            self.program.push(add(TRANSPORT, 4 * i32::from(words)));
            self.program.place(others);
        }
        self.program.place(done);
    }

    /// Takes a packet for which all conditions of a rule hold, the cheapest first.
    fn rule(&mut self, version: &Version, rule: &Rule) {
        let next = self.program.label();
        self.protocols(rule.protocols(), next);
        for (register, port) in [
            (DESTINATION_PORT, rule.destination_port),
            (SOURCE_PORT, rule.source_port),
        ] {
            if let Some(port) = port {
                self.program.jump_if(register, IsNot(be16(port)), next);
            }
        }
        for (offset, prefix) in [
            (version.destination, rule.destination),
            (version.source, rule.source),
        ] {
            if let Some(prefix) = prefix {
                self.prefix(offset, prefix, next);
            }
        }
        self.program.jump(self.take);
        self.program.place(next);
    }

    /// Goes on with one of the protocols; goes to `next` with another.
    fn protocols(&mut self, protocols: &[u8], next: Label) {
        let Some((last, others)) = protocols.split_last() else {
            return;
        };
        let allowed = self.program.label();
        for &protocol in others {
            let this = Is(protocol.into());
            self.program.jump_if(PROTOCOL, this, allowed);
        }
        let not_last = IsNot((*last).into());
        self.program.jump_if(PROTOCOL, not_last, next);
        self.program.place(allowed);
    }

    /// Goes on with an address of the prefix; goes to `next` with another.
    fn prefix(&mut self, offset: i16, prefix: Prefix, next: Label) {
        for (at, (octets, mask)) in (offset..).step_by(4).zip(prefix.words()) {
            if mask == 0 {
                continue;
            }
            self.program.push(load(U32, SCRATCH, NETWORK, at));
            if mask != u32::MAX {
                let mask = u32::from_ne_bytes(mask.to_be_bytes());
                self.program.push(and(SCRATCH, mask));
            }
            let word = IsNot(u32::from_ne_bytes(octets));
            self.program.jump_if(SCRATCH, word, next);
        }
    }

    /// Passes all packets that got here.
    fn end(&mut self) {
        self.program.place(self.pass);
        self.program.extend([set(R0, XDP_PASS), exit()]);
        self.program.place(self.take);
    }
}

impl Version {
    fn may_match(&self, rule: &Rule) -> bool {
        let prefixes = rule.source.into_iter().chain(rule.destination);
        matches!(rule.subject, Subject::Ip(_))
            && prefixes.map(Prefix::is_ipv4).all(|v4| v4 == self.is_ipv4)
    }
}
