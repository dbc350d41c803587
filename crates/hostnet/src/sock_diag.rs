//! Socket statistics over `sock_diag(7)`.

pub mod xdp_diag;

/// The type of all requests (`SOCK_DIAG_BY_FAMILY` in `linux/sock_diag.h`).
const BY_FAMILY: u16 = 20;
