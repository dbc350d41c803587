//! libxdp's interface for AF_XDP sockets, `<xdp/xsk.h>`, on weir's library.
//!
//! A program that was written against libxdp, and whose inlined functions move packets through
//! `struct xsk_ring_prod` and `xsk_ring_cons` themselves, links to this in libxdp's place, or is
//! started with it in `LD_PRELOAD`, and works unchanged: the functions, their versions, and the error numbers
//! are libxdp's. libxdp's other functions, `xdp_program__*` and `xdp_multiprog__*`, are not here.
//!
//! It differs in one thing, the redirect program: a `bpf_link` holds it, so it is gone with the last socket
//! that uses it, also after `kill -9`, and neither libbpf, bpffs nor an object file is needed. The
//! processes of a device share it. The one that `xsk_setup_xdp_prog` attaches stays, as libxdp's does.
//!
//! As with libxdp, the program owns the chunks, and nothing checks what it does with them: the guarantees
//! of [`xsk`] are those of its own sockets.
//!
//! `./run libxdp` links the shared libraries.

// # Layers
//
// Highest first; a file imports from its own layer and from those below it, never in a circle.
// The test `layers` of the crate testkit reads this list and every import.
//
//     export      the functions that C calls
//     socket      sockets, and the program on their device
//     umem        memory, and the rings of the queues that use it
//     inline      the header's inlined functions, for other languages
//     ring        a ring's memory, and C's view of it
//     abi, sys    structures of xdp/xsk.h; an option of sockets

#[cfg(not(any(xsk_internals, doc, doctest)))]
compile_error!(
    "this needs what `xsk` has for this workspace alone: RUSTFLAGS takes the place of the flags in .cargo/config.toml, so add `--cfg xsk_internals` to it"
);

mod abi;
mod export;
mod inline;
mod ring;
mod socket;
mod sys;
mod umem;
