//! The configuration that the running kernel was built with.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use flate2::read::GzDecoder;

use crate::error::{Error, ErrorKind, Result};

/// The largest configuration that is read, in bytes; real ones have some 300 KB.
const LIMIT: u64 = 16 << 20;

/// The `.config` of a kernel.
///
/// ```
/// use hostnet::kernel_config::KernelConfig;
///
/// let config = KernelConfig::new("test", "CONFIG_HZ=250\nCONFIG_VETH=m\n");
/// assert_eq!(config.value("CONFIG_HZ"), Some("250"));
/// assert!(config.has("CONFIG_VETH") && !config.has("CONFIG_TUN"));
/// ```
#[derive(Debug, Clone)]
pub struct KernelConfig {
    source: String,
    text: String,
}

impl KernelConfig {
    /// The running kernel's, from the first readable of `/proc/config.gz`
    /// (`CONFIG_IKCONFIG_PROC`), `/boot/config-RELEASE` and `/lib/modules/RELEASE/config`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if none of them can be read.
    pub fn read() -> Result<Self> {
        Self::read_below(Path::new("/"))
    }

    /// The same below another root directory, such as a container's or a test's.
    pub fn read_below(root: &Path) -> Result<Self> {
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        let packed = "/proc/config.gz";
        if let Ok(text) = unpack(&below(packed)) {
            return Ok(Self::new(packed, text));
        }
        let release = fs::read_to_string(below("/proc/sys/kernel/osrelease")).unwrap_or_default();
        let release = release.trim();
        let places = [
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
        ];
        for place in &places {
            if let Ok(text) = fs::read_to_string(below(place)) {
                return Ok(Self::new(place, text));
            }
        }
        let text = format!(
            "cannot read this kernel's configuration from {packed}, {}: \
             load its module `configs`, or install the file that came with the kernel",
            places.join(", ")
        );
        Err(Error::new(ErrorKind::NotFound, text))
    }

    /// A configuration from its text, and the file that the text is from.
    pub fn new(source: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            text: text.into(),
        }
    }

    /// The file that the configuration is from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The value of an option such as `CONFIG_HZ`, without quotes; `None` if it is not set.
    pub fn value(&self, option: &str) -> Option<&str> {
        let mut lines = self.text.lines();
        let value = lines.find_map(|line| line.strip_prefix(option)?.strip_prefix('='))?;
        Some(value.trim_matches('"'))
    }

    /// Whether an option is built in (`y`) or a module (`m`).
    pub fn has(&self, option: &str) -> bool {
        matches!(self.value(option), Some("y" | "m"))
    }
}

fn unpack(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let unpacked = GzDecoder::new(File::open(path)?);
    unpacked.take(LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
#
# CONFIG_IRQ_TIME_ACCOUNTING is not set
CONFIG_HZ_250=y
CONFIG_HZ=250
CONFIG_VETH=m
CONFIG_CC_VERSION_TEXT=\"gcc 14\"
";

    #[test]
    fn options_are_read_exactly() {
        let config = KernelConfig::new("test", TEXT);
        assert_eq!(config.value("CONFIG_HZ"), Some("250"));
        assert_eq!(config.value("CONFIG_CC_VERSION_TEXT"), Some("gcc 14"));
        assert_eq!(config.value("CONFIG_IRQ_TIME_ACCOUNTING"), None);
        assert!(config.has("CONFIG_VETH") && config.has("CONFIG_HZ_250"));
        assert!(!config.has("CONFIG_HZ") && !config.has("CONFIG_NONE"));
    }

    #[test]
    fn the_places_are_tried_in_turn() {
        let root = std::env::temp_dir().join(format!("hostnet-config-{}", std::process::id()));
        let make = |path: &str, bytes: &[u8]| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, bytes).expect("a file");
        };
        make("proc/sys/kernel/osrelease", b"6.1.0\n");
        let error = KernelConfig::read_below(&root).expect_err("nothing to read");
        assert!(error.to_string().contains("/boot/config-6.1.0"), "{error}");
        make("boot/config-6.1.0", TEXT.as_bytes());
        let config = KernelConfig::read_below(&root).expect("a configuration");
        assert_eq!(config.source(), "/boot/config-6.1.0");
        let mut packed = Vec::new();
        flate2::read::GzEncoder::new(&b"CONFIG_HZ=1000\n"[..], flate2::Compression::fast())
            .read_to_end(&mut packed)
            .expect("packs");
        make("proc/config.gz", &packed);
        let config = KernelConfig::read_below(&root).expect("a configuration");
        assert_eq!(config.source(), "/proc/config.gz");
        assert_eq!(config.value("CONFIG_HZ"), Some("1000"));
        fs::remove_dir_all(&root).expect("its removal");
    }
}
