//! What the integration tests of the workspace share.
//!
//! | module | for |
//! |---|---|
//! | [`mod@test`] | tests that say why they are skipped, each on a thread of its own, within its time limit |
//! | [`limit`] | time limits that a loaded machine does not break |
//! | [`process`] | commands and child processes, which end with their test |
//! | [`netns`] | network namespaces without a name, and veth pairs between them |
//! | [`packet`] | AF_PACKET sockets |
//! | [`sandbox`] | threads that a seccomp filter or missing capabilities limit |
//! | [`directory`] | directories that go with their test |
//! | [`archive`] | static libraries and examples of the crate under test |

// # Layers
//
// Highest first; a module imports from the layers below it, and files never in a circle.
// The test `layers` of this crate reads this list and every import.
//
//     test             a program of tests
//     netns            namespaces and what runs in them
//     process, packet  children and sockets
//     limit            time
//     slowdown         the measured speed of this machine
//     directory, archive, sandbox
//     error

pub mod archive;
pub mod directory;
mod error;
pub mod limit;
pub mod netns;
pub mod packet;
pub mod process;
pub mod sandbox;
mod slowdown;
pub mod test;

pub use archive::{example, static_library};
pub use directory::Temporary;
pub use error::{Error, Failure, Result};
pub use libtest_mimic::Arguments;
pub use limit::{Limit, until, wait_until};
pub use netns::{Side, join};
pub use packet::{Batch, PacketSocket};
pub use process::{Process, output, success};
pub use test::{Need, Skip, Suite, Test, skip};
