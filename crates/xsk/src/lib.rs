//! AF_XDP sockets whose frames have one owner, checked by the compiler.
#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod features;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod program;
#[cfg(not(loom))]
mod queue;
mod ring;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod sys;
#[cfg(all(feature = "testing", not(loom)))]
#[doc(hidden)]
pub mod testing;
#[cfg(not(loom))]
mod umem;
#[cfg(not(loom))]
mod wait;

#[cfg(not(loom))]
pub use crate::{
    batch::{Packet, RxBatch},
    builder::SocketBuilder,
    device::Device,
    error::{Error, ErrorKind, Result},
    features::{Feature, Missing},
    frame::{Frame, Reason, Refused},
    program::{AttachMode, AttachedProgram, Program},
    socket::{Mode, ModeObtained, Port, Refusal, SiblingId, Socket, Statistics},
    umem::{Accounting, Pages, Umem, UmemBuilder, XDP_PACKET_HEADROOM},
    wait::Wait,
};
