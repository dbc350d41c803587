//! Reading a recording, whatever became of the file.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use flate2::read::DeflateDecoder;
use serde::Deserialize as _;
use serde_json::Value;

use super::delta;
use super::header::{BYTES, Header, MAGIC, MARK};
use crate::ledger::snapshot::VERSION;
use crate::top::frame::Frame;

/// The longest JSON of a frame.
const MOST_JSON: u64 = 512 << 20;

/// Bytes that are searched at once for the next frame.
const CHUNK: usize = 64 << 10;

/// The work of finding frames behind damaged ones: so many times the length of the file.
const EFFORT: u64 = 8;

/// And at least so many bytes.
const EFFORT_AT_LEAST: u64 = 64 << 20;

/// A recording.
pub struct Recording {
    path: PathBuf,
    file: File,
    frames: Vec<Place>,
    damages: Vec<Damage>,
    /// The frame that was read last.
    last: Option<(usize, Value)>,
}

/// The place of a frame in the file.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Of its body.
    offset: u64,
    header: Header,
}

/// A part of a file that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// The whole frames before it.
    pub before: usize,
    /// Frames behind it that are whole, but differences to one that is not.
    pub lost: usize,
}

impl Recording {
    /// Finds the frames of a recording.
    ///
    /// # Errors
    ///
    /// Where the file is no recording, or has no whole frame.
    pub fn open(path: &Path) -> Result<Self> {
        Self::try_open(path).with_context(|| format!("cannot replay {}", path.display()))
    }

    fn try_open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        ensure!(file.metadata()?.is_file(), "it is not a regular file");
        let length = file.metadata()?.len();
        let mut begin = [0; MAGIC.len()];
        let is_ours = file.read_exact_at(&mut begin, 0).is_ok() && begin == MAGIC;
        ensure!(is_ours, "it is no recording of weir top");
        let mut search = Search {
            file: &file,
            length,
            effort: length
                .saturating_mul(EFFORT)
                .saturating_add(EFFORT_AT_LEAST),
            frames: Vec::new(),
            damages: Vec::new(),
        };
        search.all()?;
        let (frames, damages) = (search.frames, search.damages);
        let recording = Self {
            path: path.to_owned(),
            file,
            frames,
            damages,
            last: None,
        };
        ensure!(
            recording.len() > 0,
            "it has no whole frame{}",
            recording
                .damage()
                .map(|it| format!(": {it}"))
                .unwrap_or_default()
        );
        Ok(recording)
    }

    /// The number of its frames.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a recording without frames cannot be opened"
    )]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// The time of a frame, in nanoseconds of `CLOCK_REALTIME`.
    pub fn realtime_ns(&self, at: usize) -> u64 {
        self.frames.get(at).map_or(0, |it| it.header.realtime_ns)
    }

    /// Its damaged parts.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// The damage in a sentence; none if all of it is whole.
    pub fn damage(&self) -> Option<String> {
        let first = self.damages.first()?;
        let bytes: u64 = self.damages.iter().map(|it| it.length).sum();
        let lost: usize = self.damages.iter().map(|it| it.lost).sum();
        let lost = match lost {
            0 => String::new(),
            lost => format!(", {lost} more need one that is damaged"),
        };
        if first.before == self.frames.len() && lost.is_empty() {
            return Some(format!(
                "cut at byte {}: the {} frames before are whole",
                first.offset, first.before
            ));
        }
        Some(format!(
            "{bytes} bytes are damaged, the first at byte {}: {} frames are whole{lost}",
            first.offset,
            self.frames.len(),
        ))
    }

    /// A frame.
    pub fn frame(&mut self, at: usize) -> Result<Frame> {
        let frame = self.try_frame(at);
        frame.with_context(|| format!("cannot read frame {at} of {}", self.path.display()))
    }

    fn try_frame(&mut self, at: usize) -> Result<Frame> {
        let value = self.value(at)?;
        let version = value["snapshot"]["version"].as_u64();
        ensure!(
            version == Some(VERSION.into()),
            "another version of weir recorded it: this one reads format {VERSION}"
        );
        let frame = Frame::deserialize(&value).context("it is no frame of weir top")?;
        self.last = Some((at, value));
        Ok(frame)
    }

    fn value(&mut self, at: usize) -> Result<Value> {
        ensure!(
            at < self.frames.len(),
            "there are only {}",
            self.frames.len()
        );
        let key = (0..=at).rev().find(|it| self.frames[*it].header.is_key);
        let key = key.context("it has no keyframe")?;
        let (mut next, mut value) = match self.last.take() {
            Some((last, value)) if (key..=at).contains(&last) => (last + 1, value),
            _ => (key, Value::Null),
        };
        while next <= at {
            let body = self.json(self.frames[next])?;
            if self.frames[next].header.is_key {
                value = body;
            } else {
                ensure!(
                    delta::apply(&mut value, body),
                    "it does not fit to the frame before"
                );
            }
            next += 1;
        }
        Ok(value)
    }

    fn json(&self, place: Place) -> Result<Value> {
        let mut body = vec![0; place.header.length as usize];
        self.file.read_exact_at(&mut body, place.offset)?;
        ensure!(place.header.fits(&body), "the file changed meanwhile");
        let mut json = Vec::new();
        let mut decoder = DeflateDecoder::new(&body[..]).take(MOST_JSON);
        decoder
            .read_to_end(&mut json)
            .context("its body is not compressed as ours")?;
        serde_json::from_slice(&json).context("its body is no JSON")
    }
}

/// Finds frames in a file.
struct Search<'a> {
    file: &'a File,
    length: u64,
    effort: u64,
    frames: Vec<Place>,
    damages: Vec<Damage>,
}

impl Search<'_> {
    fn all(&mut self) -> Result<()> {
        let mut at = MAGIC.len() as u64;
        // Whether the frame before is whole, so that a difference to it can be used.
        let mut is_whole = false;
        while at < self.length {
            let Some(place) = self.frame(at)? else {
                at = self.skip(at)?;
                is_whole = false;
                continue;
            };
            is_whole |= place.header.is_key;
            if is_whole {
                self.frames.push(place);
            } else if let Some(damage) = self.damages.last_mut() {
                damage.lost += 1;
            }
            at = place.offset + u64::from(place.header.length);
        }
        Ok(())
    }

    /// The whole frame at this byte.
    fn frame(&mut self, at: u64) -> Result<Option<Place>> {
        let mut bytes = [0; BYTES];
        let offset = at + BYTES as u64;
        if offset > self.length {
            return Ok(None);
        }
        self.file.read_exact_at(&mut bytes, at)?;
        let Some(header) = Header::read(&bytes) else {
            return Ok(None);
        };
        if offset + u64::from(header.length) > self.length {
            return Ok(None);
        }
        self.effort = self.effort.saturating_sub(header.length.into());
        let mut body = vec![0; header.length as usize];
        self.file.read_exact_at(&mut body, offset)?;
        Ok(header.fits(&body).then_some(Place { offset, header }))
    }

    /// The place of the next whole frame behind a damaged one, or the end.
    fn skip(&mut self, damaged: u64) -> Result<u64> {
        let end = self.next_whole(damaged + 1)?.unwrap_or(self.length);
        self.damages.push(Damage {
            offset: damaged,
            length: end - damaged,
            before: self.frames.len(),
            lost: 0,
        });
        Ok(end)
    }

    fn next_whole(&mut self, from: u64) -> Result<Option<u64>> {
        let mut at = from;
        while self.effort > 0 {
            let Some(found) = self.mark(at)? else { break };
            if self.frame(found)?.is_some() {
                return Ok(Some(found));
            }
            self.effort = self.effort.saturating_sub(CHUNK as u64);
            at = found + 1;
        }
        Ok(None)
    }

    /// The next mark of a frame.
    fn mark(&self, from: u64) -> Result<Option<u64>> {
        let mut at = from;
        let mut chunk = vec![0; CHUNK];
        while at + MARK.len() as u64 <= self.length {
            let bytes = (self.length - at).min(CHUNK as u64) as usize;
            self.file.read_exact_at(&mut chunk[..bytes], at)?;
            let found = chunk[..bytes].windows(MARK.len()).position(|it| it == MARK);
            if let Some(found) = found {
                return Ok(Some(at + found as u64));
            }
            // A mark may lie across two chunks.
            at += (bytes - (MARK.len() - 1)) as u64;
        }
        Ok(None)
    }
}
