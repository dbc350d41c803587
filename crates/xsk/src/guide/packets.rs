//! The packets that reach the socket, and the XDP programs that choose them.
//!
//! A socket gets packets from an XDP program that redirects them to it; all others go to the network stack.
//!
//! | XDP program | Packets | Setting |
//! |---|---|---|
//! | built-in | all of the queue: ARP, ping and SSH do not reach the network stack | none |
//! | built-in, with a [`Filter`] | those that match one of the rules | [`SocketBuilder::filter`] |
//! | the caller's, loaded | its choice | [`SocketBuilder::attach`] |
//! | the caller's, attached | its choice | [`SocketBuilder::map`] |
//! | libxdp's, [beside other programs](#beside-other-xdp-programs) | all that the programs before it pass | `SocketBuilder::dispatcher` |
//!
//! # Before the network stack
//!
//! XDP runs before the network stack of the host, and a packet that it redirects to a socket goes nowhere else. So the program
//! has to do, or to do without, what the stack does with a packet before an ordinary socket gets it:
//!
//! | The stack | A packet of an AF_XDP socket |
//! |---|---|
//! | drops packets with a wrong checksum of IPv4, UDP, TCP or ICMP | may have one: [`checksum::check`](crate::checksum::check) |
//! | knows that a local sender has left the checksum to a card | has a partial sum, and is dropped by the receiver if it is sent on so: [`checksum::complete`](crate::checksum::complete) |
//! | drops packets with impossible lengths, and the padding after an IP packet | has the length of the frame: the fields in it are the sender's |
//! | drops packets to other hosts' addresses, or forwards them | is for any destination that the device and the program let pass |
//! | counts the time to live down, and obeys or refuses IP options | has them as they arrived: an answer needs a time to live of its own, not what is left of the query's |
//! | puts fragments together | is a fragment |
//! | has a firewall, connection tracking and reverse path filter | has met none of them |
//! | answers ARP, neighbour discovery and ping | is the query: without a filter the host's neighbours lose its address within a minute |
//! | shows packets to tcpdump | is not shown, received or sent |
//!
//! A segment of TCP that a local sender left to a card to be cut (TSO) is longer than the MTU. In generic XDP it
//! does not fit into a chunk, and is dropped ([`Statistics::rx_dropped`](crate::Statistics::rx_dropped)); on a veth the kernel
//! turns this off for native XDP.
//!
//! The library parses no headers: crates such as `etherparse` and `smoltcp` do, on the bytes of a packet. To make or change
//! one, write its fields, and at last the sums by [`checksum::write`](crate::checksum::write).
//!
//! # Filters
//!
//! A packet is taken if it matches any [`Rule`] of the filter, and it matches a rule if all conditions
//! of the rule hold. This socket takes DNS to one network and PTP; everything else works as before:
//!
//! ```no_run
//! use std::net::Ipv4Addr;
//! use xsk::{Filter, Rule, Socket, Umem};
//!
//! # fn main() -> xsk::Result<()> {
//! let dns = Rule::udp().destination(Ipv4Addr::new(192, 0, 2, 0), 24).destination_port(53);
//! let ptp = Rule::ether_type(0x88f7);
//! let umem = Umem::builder().build()?;
//! let socket = Socket::builder(&umem, "eth0", 0).filter(Filter::any([dns, ptp])).open()?;
//! # Ok(())
//! # }
//! ```
//!
//! | Packet | Match |
//! |---|---|
//! | with one VLAN tag (802.1Q or 802.1ad) | by its EtherType and headers behind the tag, in any VLAN. A tag that the network card has removed is not there (`ethtool -K DEVICE rx-vlan-offload off rx-vlan-stag-hw-parse off` keeps it) |
//! | with two tags | only a rule of the inner tag's EtherType, 0x8100 or 0x88a8 |
//! | IPv4 with options | by the ports behind the options |
//! | IPv4 fragment, the first included | only rules without ports, so that the fragments of a datagram go one way and the network stack can reassemble them |
//! | IPv6 with extension headers, fragments among them | by its addresses. Protocol and ports are those behind the fixed header only, so that no rule with a protocol or port matches |
//! | in a tunnel | by the outer headers |
//! | too short for a field that a rule needs, or with a wrong IP version or header length | no rule that needs the field |
//!
//! Devices whose packets begin with the IP header, as `tun` and `wireguard` ([`Device::has_ethernet_header`]), refuse
//! a filter ([`ErrorKind::InvalidConfig`]).
//!
//! The program reads no more than the rules need. It has 6 instructions without a filter, 19 with
//! one EtherType, 42 with one IPv4 prefix and UDP port as above, 56 with a UDP port of both IP
//! versions. A packet that is passed on executes no more than these; each further rule of a
//! UDP port adds 3 instructions for each IP version, and at most [`Filter::MAX_RULES`] are allowed. A
//! packet that is passed on has also cost the driver's XDP step: in zero-copy mode the kernel
//! copies it.
//!
//! The filter decides about packets, not queues: a network card spreads packets over its queues, by RSS or
//! by flow rules (`ethtool -N`), and a packet of a queue without a socket goes to the network stack.
//!
//! # An XDP program of the caller
//!
//! [`SocketBuilder::attach`] takes a program that libbpf, aya or another loader has loaded, and the
//! XSKMAP that it redirects to. It attaches the program as it does the built-in one: in the mode of the
//! socket, with a `bpf_link` that is gone with its last socket or process. The program must
//! redirect packets to the slot of their queue:
//!
//! ```c
//! return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
//! ```
//!
//! Refused, each with its cure ([`ErrorKind::Foreign`] unless another is named):
//!
//! - a program that is not of type XDP;
//! - an XSKMAP that the program does not use;
//! - an XSKMAP without a slot for the queue ([`ErrorKind::QueueOutOfRange`]);
//! - a program that is attached to another device too: the kernel drops packets that reach a socket of
//!   another device. Links are listed with `CAP_SYS_ADMIN` only, and not those in other network
//!   namespaces with the same index.
//!
//! [`SocketBuilder::map`] takes the XSKMAP of a program that is attached already, by whomever, and
//! attaches nothing.
//!
//! # Beside other XDP programs
//!
//! A device runs one XDP program in the driver. libxdp's dispatcher is one that calls up to ten others in
//! turn, such as xdp-filter, each for as long as those before it return `XDP_PASS`. With the cargo
//! feature `libxdp`, `SocketBuilder::dispatcher` attaches libxdp's own redirect program there, of
//! priority 20, and inserts the socket into its XSKMAP. libxdp.so.1 (1.2 or later; Debian: `libxdp1`)
//! is loaded at run time, which a statically linked program cannot do; nothing is linked.
//!
//! Programs use one dispatcher, and one redirect program, together: libxdp counts the users of the redirect
//! program, and the last one detaches it. The others stay attached.
//!
//! Refused, each with its cure:
//!
//! - [`ErrorKind::Unsupported`] where libxdp is absent, `/sys/fs/bpf` is not a bpffs (libxdp pins its
//!   dispatcher there; the environment variable `LIBXDP_BPFFS` names another), or the kernel refuses BPF
//!   trampolines;
//! - [`ErrorKind::InvalidConfig`] together with a filter, which that program lacks;
//! - [`ErrorKind::ModeRefused`] in generic XDP, which libxdp does not choose for it;
//! - [`ErrorKind::ProgramAttached`] where a program is attached without the dispatcher.
//!
//! libxdp's objects are pinned in `/sys/fs/bpf/xdp` and not owned by a process. After `kill -9` of the last user
//! the redirect program stays attached: it passes all packets, as its XSKMAP is empty, and the next socket
//! uses it again, but its count of users never falls to zero. Remove it by hand:
//!
//! ```text
//! xdp-loader status eth0            # shows it as xsk_def_prog, with its ID
//! xdp-loader unload eth0 --id ID    # leaves the others attached
//! xdp-loader unload eth0 --all      # all programs, and the dispatcher
//! xdp-loader clean eth0             # pinned objects of dispatchers that are attached no more
//! ```
//!
//! [`Filter`]: crate::Filter
//! [`Filter::MAX_RULES`]: crate::Filter::MAX_RULES
//! [`Rule`]: crate::Rule
//! [`SocketBuilder::filter`]: crate::SocketBuilder::filter
//! [`SocketBuilder::attach`]: crate::SocketBuilder::attach
//! [`SocketBuilder::map`]: crate::SocketBuilder::map
//! [`Device::has_ethernet_header`]: crate::Device::has_ethernet_header
//! [`ErrorKind::Foreign`]: crate::ErrorKind::Foreign
//! [`ErrorKind::InvalidConfig`]: crate::ErrorKind::InvalidConfig
//! [`ErrorKind::ModeRefused`]: crate::ErrorKind::ModeRefused
//! [`ErrorKind::ProgramAttached`]: crate::ErrorKind::ProgramAttached
//! [`ErrorKind::QueueOutOfRange`]: crate::ErrorKind::QueueOutOfRange
//! [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
