//! The functions of `include/weir/xsk.h`, where they are documented: the name, the arguments and the
//! errors are there, and here is what they do.

mod checksum;
mod fragments;
mod frames;
mod metadata;
mod packets;
mod rules;
mod socket;
mod umem;
mod waiting;

pub use crate::fault::weir_xsk_error;
pub use checksum::{weir_xsk_checksum_check, weir_xsk_checksum_complete, weir_xsk_checksum_write};
pub use fragments::{weir_xsk_recv_fragments, weir_xsk_send_fragments};
pub use frames::{weir_xsk_alloc, weir_xsk_free, weir_xsk_recv, weir_xsk_send};
pub use metadata::{
    weir_xsk_has_rx_hints, weir_xsk_recv_with_hints, weir_xsk_send_with, weir_xsk_take_timestamp,
    weir_xsk_tx_support,
};
pub use packets::{
    weir_xsk_forward_each, weir_xsk_receive_each, weir_xsk_refuse_callback, weir_xsk_send_each,
};
pub use socket::{
    weir_xsk_close, weir_xsk_flush, weir_xsk_look_after, weir_xsk_mode, weir_xsk_open,
    weir_xsk_reclaim, weir_xsk_refusal, weir_xsk_statistics,
};
pub use umem::{
    weir_xsk_umem_accounting, weir_xsk_umem_close, weir_xsk_umem_create,
    weir_xsk_umem_create_unchecked,
};
pub use waiting::{weir_xsk_fd, weir_xsk_prepare, weir_xsk_wait};
