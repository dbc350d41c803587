//! The report of `weir ledger`.

use serde::Serialize;

use super::capture::CaptureReport;
use super::sheet::Sheet;
use crate::report::Machine;

/// The report, and its form in JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine, the build and the command.
    pub host: Machine,
    /// The watched namespaces and devices.
    pub scope: String,
    /// Whether the interval began with the boot.
    pub since_boot: bool,
    /// The balance sheet.
    #[serde(flatten)]
    pub sheet: Sheet,
    /// The file of dropped packets, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureReport>,
    /// The cost of watching, and further notes.
    pub notes: Vec<String>,
}
