//! `weir doctor`: misconfigured network settings and packets lost within a look of some seconds, each
//! finding with its evidence, its fix and the undo of that fix.
//!
//! A [`Check`] reads the host through a [`Context`] alone and returns [`Verdict`]s. The
//! [`Report`] lists them; a [`Plan`](plan::Plan) is the fixes among them.

pub mod apply;
pub mod changes;
pub mod check;
pub mod context;
pub mod device;
pub mod evidence;
pub mod finding;
pub mod fix;
pub mod host;
mod irq;
pub mod journal;
mod mib;
mod owner;
pub mod plan;
pub mod registry;
pub mod report;
pub mod severity;
pub mod stack;
pub mod step;
pub mod verdict;

pub use check::Check;
pub use context::Context;
pub use evidence::Evidence;
pub use finding::Finding;
pub use fix::Fix;
pub use registry::{check, checks, counters};
pub use report::Report;
pub use severity::Severity;
pub use step::{Read, Step};
pub use verdict::{HOST, Verdict};
