//! Findings as SARIF 2.1.0, which code scanning services read.
//!
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>

use std::fmt::Write as _;
use std::path::Path;

use pf_filter::diagnostic::Severity;
use serde::Serialize;

use super::finding::{Finding, Region};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
const HOME: &str = "https://crates.io/crates/pf-filter";

/// A log with one run.
#[derive(Debug, Serialize)]
pub struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    column_kind: &'static str,
    invocations: [Invocation; 1],
    results: Vec<Outcome>,
}

#[derive(Debug, Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    information_uri: &'static str,
    semantic_version: &'static str,
    rules: Vec<Descriptor>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    id: &'static str,
    short_description: Message,
    help: Message,
    default_configuration: Configuration,
}

#[derive(Debug, Serialize)]
struct Configuration {
    level: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    execution_successful: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    rule_id: &'static str,
    rule_index: usize,
    level: &'static str,
    message: Message,
    locations: [Location; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_locations: Vec<Location>,
}

#[derive(Debug, Serialize)]
struct Message {
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
    #[serde(rename = "physicalLocation")]
    physical: PhysicalLocation,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Lines,
}

#[derive(Debug, Serialize)]
struct ArtifactLocation {
    uri: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lines {
    start_line: u32,
    start_column: u32,
    end_line: u32,
    end_column: u32,
}

impl Log {
    /// A log of findings. Files below `folder`, the working directory, are named relative to it, as code scanning
    /// services want those of a repository.
    pub fn new(findings: &[Finding], folder: &Path) -> Self {
        let rules = descriptors(findings);
        let index = |code| rules.iter().position(|rule| rule.id == code);
        let outcome = |finding: &Finding| outcome(finding, index(finding.code), folder);
        let results = findings.iter().map(outcome).collect();
        let driver = Driver {
            name: "weir filter",
            information_uri: HOME,
            semantic_version: env!("CARGO_PKG_VERSION"),
            rules,
        };
        Self {
            schema: SCHEMA,
            version: "2.1.0",
            runs: [Run {
                tool: Tool { driver },
                column_kind: "unicodeCodePoints",
                invocations: [Invocation {
                    execution_successful: true,
                }],
                results,
            }],
        }
    }
}

/// A rule for each kind of finding, in the order of the findings.
fn descriptors(findings: &[Finding]) -> Vec<Descriptor> {
    let mut rules: Vec<Descriptor> = Vec::new();
    for finding in findings {
        if !rules.iter().any(|rule| rule.id == finding.code) {
            rules.push(descriptor(finding));
        }
    }
    rules
}

fn descriptor(finding: &Finding) -> Descriptor {
    let title = title(finding.code);
    let help = finding
        .help
        .clone()
        .unwrap_or_else(|| finding.message.clone());
    Descriptor {
        id: finding.code,
        help: message(&help),
        short_description: message(&title),
        default_configuration: Configuration {
            level: level(finding.severity),
        },
    }
}

/// `unknown-protocol` as a title.
fn title(code: &str) -> String {
    let words = code.replace('-', " ");
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn outcome(finding: &Finding, index: Option<usize>, folder: &Path) -> Outcome {
    let help = finding.help.iter().map(|help| format!(". {help}"));
    let text = finding.message.clone() + &help.collect::<String>();
    let related = finding.related.iter().enumerate();
    Outcome {
        rule_id: finding.code,
        rule_index: index.unwrap_or_default(),
        level: level(finding.severity),
        message: message(&text),
        locations: [location(&finding.region, None, folder)],
        related_locations: related
            .map(|(at, region)| location(region, Some(at + 1), folder))
            .collect(),
    }
}

fn location(region: &Region, id: Option<usize>, folder: &Path) -> Location {
    // An empty region is a place between characters, which services do not show.
    let is_empty = (region.line, region.column) == (region.end_line, region.end_column);
    Location {
        id,
        message: region.label.as_deref().map(message),
        physical: PhysicalLocation {
            artifact_location: ArtifactLocation {
                uri: uri(&region.file, folder),
            },
            region: Lines {
                start_line: region.line,
                start_column: region.column,
                end_line: region.end_line,
                end_column: region.end_column + u32::from(is_empty),
            },
        },
    }
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Notice => "note",
    }
}

fn message(text: &str) -> Message {
    Message {
        text: text.to_owned(),
    }
}

/// A path as a URI reference: relative below the folder, else of the scheme `file`.
fn uri(file: &str, folder: &Path) -> String {
    let path = Path::new(file);
    let path = path.strip_prefix(folder).unwrap_or(path);
    let path = path.strip_prefix("./").unwrap_or(path);
    let text = path.to_string_lossy();
    let mut uri = if path.is_absolute() {
        "file://".to_owned()
    } else {
        String::new()
    };
    for byte in text.bytes() {
        // `pchar` of RFC 3986 and the slash; a colon could end a scheme.
        if byte.is_ascii_alphanumeric() || b"-._~/@!$&'()*+,;=".contains(&byte) {
            uri.push(byte as char);
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_repository_are_relative() {
        let folder = Path::new("/home/a");
        for (file, expected) in [
            ("pf.conf", "pf.conf"),
            ("./etc/pf.conf", "etc/pf.conf"),
            ("/home/a/etc/pf.conf", "etc/pf.conf"),
            ("/etc/pf.conf", "file:///etc/pf.conf"),
            ("a b:ä?", "a%20b%3A%C3%A4%3F"),
        ] {
            assert_eq!(uri(file, folder), expected);
        }
    }

    #[test]
    fn a_code_is_a_title() {
        assert_eq!(title("unknown-protocol"), "Unknown protocol");
    }
}
