//! pf rules: read from disk, for a host, with findings as text, JSON and SARIF.
//!
//! The meaning of rules is in the crate `pf_filter`, which reads no machine; here are the files, the
//! host and the pictures of source text.

pub mod capture;
pub mod compare;
pub mod disk;
pub mod explain;
pub mod finding;
pub mod link;
pub mod live;
pub mod resolve;
pub mod rewrite;
pub mod rules;
pub mod sarif;
pub mod support;
pub mod text;
