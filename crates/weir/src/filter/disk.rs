//! Files of a configuration, read from disk within limits.

use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use pf_filter::source::Loader;

/// The largest file of a configuration.
pub const MOST_BYTES: u64 = 64 << 20;
/// The name of standard input on the command line, and as a source.
pub const DASH: &str = "-";
/// pfctl's name for it.
const STDIN: &str = "stdin";

/// A configuration on disk, or on standard input, and the files that it names.
#[derive(Debug)]
pub struct Disk {
    name: String,
    bytes: Vec<u8>,
    folder: Option<PathBuf>,
}

impl Disk {
    /// Reads the configuration; `-` is standard input.
    ///
    /// # Errors
    ///
    /// For a file that cannot be read, is no text, or is larger than [`MOST_BYTES`].
    pub fn open(path: &Path) -> Result<Self> {
        let is_stdin = path.as_os_str() == DASH;
        let bytes = if is_stdin {
            contents(io::stdin().lock())
        } else {
            // A shell's <(command) is a pipe that somebody writes to, unlike a FIFO on disk.
            let is_descriptor = ["/dev/fd", "/proc/self/fd", "/dev/stdin"]
                .iter()
                .any(|it| path.starts_with(it));
            read(path, is_descriptor)
        };
        let name = if is_stdin {
            STDIN.to_owned()
        } else {
            path.display().to_string()
        };
        Ok(Self {
            bytes: bytes.with_context(|| format!("cannot read {name}"))?,
            folder: path.parent().filter(|_| !is_stdin).map(Path::to_owned),
            name,
        })
    }

    /// Its name, under which it is a source.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Loader for Disk {
    /// The configuration itself, or a file that it names: relative to the working directory, as
    /// pfctl has it, else to the configuration's folder.
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if path == self.name {
            return Ok(self.bytes.clone());
        }
        let here = read(Path::new(path), false);
        match (&here, &self.folder) {
            (Err(error), Some(folder)) if error.kind() == ErrorKind::NotFound => {
                read(&folder.join(path), false).or(here)
            }
            _ => here,
        }
    }
}

/// The bytes of a regular file, or of a pipe where one is expected.
fn read(path: &Path, may_be_pipe: bool) -> io::Result<Vec<u8>> {
    // Opening a FIFO would wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let flags = if may_be_pipe { 0 } else { nonblocking };
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    refuse_special(&file, may_be_pipe)?;
    contents(file)
}

fn refuse_special(file: &File, may_be_pipe: bool) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    let what = if kind.is_dir() {
        "is a directory: name a file in it"
    } else if kind.is_fifo() && !may_be_pipe {
        "is a FIFO: read it with `-`, as standard input"
    } else if kind.is_file() || kind.is_fifo() || kind.is_char_device() && may_be_pipe {
        return Ok(());
    } else {
        "is a device or socket: name a regular file"
    };
    Err(Error::new(ErrorKind::InvalidInput, what))
}

/// All bytes, if they are text and not too many.
fn contents(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that it is too long.
    from.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        let text = format!("is larger than {} MiB, the limit", MOST_BYTES >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, text));
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        let text = format!("is no text: byte {at} is zero");
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-disk-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        path
    }

    #[test]
    fn a_file_is_found_beside_the_configuration() {
        let folder = folder("beside");
        let path = folder.join("pf.conf");
        fs::write(&path, "include \"more.conf\"").expect("is written");
        fs::write(folder.join("more.conf"), "pass").expect("is written");
        let disk = Disk::open(&path).expect("is there");
        assert_eq!(disk.read("more.conf").expect("is beside it"), b"pass");
        assert_eq!(disk.read(disk.name()).expect("itself"), disk.bytes);
        let error = disk.read("missing.conf").expect_err("is not there");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        fs::remove_dir_all(folder).expect("is removed");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = folder("refused");
        let file = folder.join("file");
        fs::write(&file, b"pass\0").expect("is written");
        let fifo = folder.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("a FIFO");
        for (path, reason) in [
            (&file, "is no text: byte 4 is zero"),
            (&fifo, "is a FIFO: "),
            (&folder, "is a directory: "),
            (&PathBuf::from("/dev/zero"), "is a device or socket: "),
        ] {
            let error = Disk::open(path).expect_err("is refused");
            assert!(format!("{error:#}").contains(reason), "{error:#}");
        }
        fs::remove_dir_all(folder).expect("is removed");
    }

    #[test]
    fn a_file_has_a_limit() {
        let most = contents(io::repeat(b' ').take(MOST_BYTES));
        assert_eq!(most.expect("just fits").len() as u64, MOST_BYTES);
        let error = contents(io::repeat(b' ')).expect_err("is too long");
        assert_eq!(error.to_string(), "is larger than 64 MiB, the limit");
    }
}
