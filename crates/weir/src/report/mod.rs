//! Parts of every report.

pub mod atomic_file;
pub mod date;
pub mod latency;
pub mod machine;
pub mod page;
pub mod progress_line;
pub mod shell;
pub mod statistics;
pub mod text;

pub use atomic_file::ReportFile;
pub use machine::Machine;
