//! The library [`xsk`] for C, as `libweir-xsk.a` and `libweir-xsk.so.0`; the interface is documented
//! in `include/weir/xsk.h`.
//!
//! The compiler checks the ownership of frames in Rust; here each call does. A handle is a number,
//! looked up in a table: no call follows a pointer that C passes, but to its own structures, arrays
//! and callbacks. So a closed socket or a sent frame is an error in every build, and a call that
//! another one is still inside of, too.
//!
//! A UMEM can be made without the checks of frames: then functions of the header are inlined, which move packets
//! in the rings themselves, between the library's calls. A frame is its place in the memory, and its owner stands in the
//! table of `xsk`, as ever.
//!
//! A panic does not reach C: it is caught and becomes `-ENOTRECOVERABLE`, and a socket that it came
//! through is refused from then on. A callback that unwinds ends the process.

// # Layers
//
// Highest first; a file imports from its own layer and from those below it, never in a circle.
// The test `layers` of the crate testkit reads this list and every import.
//
//     calls               the functions of the header
//     object              UMEMs and sockets, by their handles
//     registry, table     the handles of UMEMs and sockets; those of frames
//     view                the part of a socket that inlined functions use
//     abi                 the structures of the header
//     memory, descriptor  the memory and the descriptors of the calling program
//     child               its children
//     fault               errors: codes and texts

mod abi;
mod calls;
mod child;
mod descriptor;
mod fault;
mod memory;
mod object;
mod registry;
mod table;
mod view;

pub use abi::{
    Accounting, Each, Frame, Rule, RxHints, SocketOptions, Statistics, TxRequest, TxTimestamp,
    UmemOptions, Write,
};
pub use calls::*;
