//! Writing a recording.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::Value;

use super::delta;
use super::header::{Header, MAGIC};
use crate::top::frame::Frame;

/// The time between two keyframes, in nanoseconds of `CLOCK_BOOTTIME`.
const KEY_EVERY_NS: u64 = 60_000_000_000;

/// Addresses and names of processes are not for everybody.
const MODE: u32 = 0o600;

/// A recording that is being written.
pub struct Writer {
    path: PathBuf,
    file: File,
    /// The length of the file up to the last whole frame.
    length: u64,
    /// The last frame, and when the last keyframe was.
    last: Option<(Value, u64)>,
}

impl Writer {
    /// Makes a recording, or continues one.
    ///
    /// # Errors
    ///
    /// Where the file is something else, or another process records to it.
    pub fn open(path: &Path) -> Result<Self> {
        Self::try_open(path).with_context(|| format!("cannot record to {}", path.display()))
    }

    fn try_open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(MODE)
            .open(path)?;
        ensure!(
            file.metadata()?.is_file(),
            "it is not a regular file, and a recording is read from any place of it"
        );
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                bail!("another weir top records to it: end that one, or name another file")
            }
            locked => locked.context("cannot lock it")?,
        }
        let mut writer = Self {
            path: path.to_owned(),
            length: file.metadata()?.len(),
            file,
            last: None,
        };
        writer.begin()?;
        Ok(writer)
    }

    fn begin(&mut self) -> Result<()> {
        let mut begin = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        (&self.file)
            .take(MAGIC.len() as u64)
            .read_to_end(&mut begin)?;
        if begin == MAGIC {
            return Ok(());
        }
        // A recording that was killed as it began has less.
        ensure!(
            MAGIC.starts_with(&begin),
            "it is no recording of weir top: name another file"
        );
        self.length = 0;
        self.file.set_len(0)?;
        self.write(MAGIC)
    }

    /// Appends a frame.
    ///
    /// # Errors
    ///
    /// Where the file cannot take it; it then ends with the frame before.
    pub fn append(&mut self, frame: &Frame) -> Result<()> {
        let appended = self.try_append(frame);
        appended.with_context(|| format!("cannot record to {}", self.path.display()))
    }

    fn try_append(&mut self, frame: &Frame) -> Result<()> {
        let now = frame.snapshot.boottime_ns;
        let mut value = serde_json::to_value(frame)?;
        delta::without_nulls(&mut value);
        let last = self.last.take();
        let last = last.filter(|(_, key)| now.wrapping_sub(*key) < KEY_EVERY_NS);
        let (body, key) = match &last {
            // Frames are never equal: their times differ.
            Some((old, key)) => (delta::between(old, &value).unwrap_or_default(), *key),
            None => (Value::Null, now),
        };
        let is_key = last.is_none();
        let body = compressed(if is_key { &value } else { &body })?;
        let header = Header::of(&body, is_key, frame.snapshot.realtime_ns)
            .context("the frame is too long")?;
        self.write(&[&header.bytes()[..], &body].concat())?;
        self.last = Some((value, key));
        Ok(())
    }

    /// Appends bytes in one write, or nothing.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // A part that cannot be removed either is found by its checksum.
            let _ = self.file.set_len(self.length);
            return Err(error.into());
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn compressed(value: &Value) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    // In one write: each zeroes a buffer of 32 KiB.
    encoder.write_all(&serde_json::to_vec(value)?)?;
    Ok(encoder.finish()?)
}
