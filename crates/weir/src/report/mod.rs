//! Parts of every report.

pub mod date;
pub mod file;
pub mod machine;
pub mod page;
pub mod progress_line;
pub mod shell;
pub mod statistics;
pub mod text;

pub use file::ReportFile;
pub use machine::Machine;
