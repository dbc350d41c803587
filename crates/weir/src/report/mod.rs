//! What all reports have in common.

pub mod file;
pub mod machine;
pub mod page;
pub mod progress_line;
pub mod statistics;
pub mod text;

pub use file::ReportFile;
pub use machine::Machine;
