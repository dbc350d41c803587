//! What all reports have in common.

pub mod file;
pub mod machine;
pub mod page;
pub mod progress_bar;
pub mod text;

pub use file::ReportFile;
pub use machine::Machine;
