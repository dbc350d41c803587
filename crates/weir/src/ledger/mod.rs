//! Every packet accounted for: a host's counters and error events, and the balance between them.
//!
//! A [`Snapshot`] has the counters of a host at one moment; a [`Sheet`] is the difference of two. Counters come first,
//! since they cost nothing; tracepoints of errors are attached too, since they cost nothing while nothing fails;
//! tracepoints of success never are, unless asked for.

pub mod balance;
pub mod capture;
pub mod events;
pub mod html;
pub mod read;
pub mod report;
pub mod sheet;
pub mod snapshot;
pub mod stage;
pub mod table;

pub use balance::{balance, since_boot};
pub use sheet::Sheet;
pub use snapshot::Snapshot;
pub use stage::Stage;
