//! Tests of recordings, cut and damaged at every place.

use std::fs;
use std::path::{Path, PathBuf};

use super::header::{BYTES, MAGIC};
use super::{Recording, Writer};
use crate::top::fixture::frame;

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let name = format!("weir-top-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Records frames of these seconds.
fn record(path: &Path, seconds: impl IntoIterator<Item = u64>) {
    let mut writer = Writer::open(path).expect("a recording");
    for second in seconds {
        writer.append(&frame(second)).expect("a frame");
    }
}

/// The seconds of the frames of a recording; each must be as it was recorded.
fn seconds(recording: &mut Recording) -> Vec<u64> {
    let first = frame(0).snapshot.realtime_ns;
    let mut seconds = Vec::new();
    for at in 0..recording.len() {
        let read = recording.frame(at).expect("a whole frame");
        let second = (read.snapshot.realtime_ns - first) / 1_000_000_000;
        assert_eq!(read, frame(second), "frame {at}");
        seconds.push(second);
    }
    seconds
}

fn replayed(path: &Path) -> Vec<u64> {
    seconds(&mut Recording::open(path).expect("a recording"))
}

#[test]
fn frames_are_replayed_as_they_were_in_any_order() {
    let file = Scratch::new("order");
    record(&file.0, 0..130);
    let mut recording = Recording::open(&file.0).expect("a recording");
    assert_eq!(recording.damage(), None);
    assert_eq!(seconds(&mut recording), (0..130).collect::<Vec<_>>());
    for at in [129, 0, 61, 60, 59, 59, 128, 3] {
        let read = recording.frame(at).expect("a frame");
        assert_eq!(read, frame(at as u64), "frame {at}");
    }
    assert!(recording.frame(130).is_err());
}

#[test]
fn differences_are_short() {
    let file = Scratch::new("short");
    record(&file.0, [0]);
    let key = fs::metadata(&file.0).expect("a file").len();
    let file = Scratch::new("short-2");
    record(&file.0, 0..11);
    let all = fs::metadata(&file.0).expect("a file").len();
    assert!(
        (all - key) / 10 < key,
        "{key} bytes, and {all} for ten more"
    );
}

#[test]
fn a_recording_that_is_cut_anywhere_has_its_whole_frames() {
    let file = Scratch::new("cut");
    record(&file.0, 0..4);
    let whole = fs::read(&file.0).expect("a file");
    let ends = ends(&whole);
    assert_eq!(ends.len(), 4);
    for cut in 0..whole.len() {
        fs::write(&file.0, &whole[..cut]).expect("a file");
        let frames = ends.iter().filter(|end| **end <= cut).count();
        let opened = Recording::open(&file.0);
        if frames == 0 {
            let error = format!("{:#}", opened.err().expect("no frame"));
            let reason = if cut < MAGIC.len() {
                "it is no recording"
            } else {
                "it has no whole frame"
            };
            assert!(error.contains(reason), "{cut}: {error}");
            continue;
        }
        let mut recording = opened.unwrap_or_else(|error| panic!("cut at {cut}: {error:#}"));
        assert_eq!(recording.len(), frames, "cut at {cut}");
        let at = ends[frames - 1];
        let expected =
            (at < cut).then(|| format!("cut at byte {at}: the {frames} frames before are whole"));
        assert_eq!(recording.damage(), expected, "cut at {cut}");
        if cut == at || cut % 97 == 0 {
            assert_eq!(
                seconds(&mut recording),
                (0..frames as u64).collect::<Vec<_>>()
            );
        }
    }
}

/// Where each frame ends.
fn ends(file: &[u8]) -> Vec<usize> {
    let mut at = MAGIC.len();
    let mut ends = Vec::new();
    while at < file.len() {
        let mut length = [0; 4];
        length.copy_from_slice(&file[at + 4..at + 8]);
        at += BYTES + u32::from_le_bytes(length) as usize;
        ends.push(at);
    }
    ends
}

#[test]
fn frames_behind_a_damaged_one_are_found() {
    let file = Scratch::new("damage");
    // Keyframes at 0 and 60.
    record(&file.0, 0..63);
    let whole = fs::read(&file.0).expect("a file");
    let ends = ends(&whole);
    // A byte of each kind of place: mark, length, checksum, kind, time, body; of the first frame, of a difference,
    // and of the second keyframe.
    for damaged in [0, 1, 30, 60, 62] {
        let begin = if damaged == 0 {
            MAGIC.len()
        } else {
            ends[damaged - 1]
        };
        for place in [0, 3, 4, 7, 8, 12, 13, 20, BYTES, ends[damaged] - begin - 1] {
            let mut bytes = whole.clone();
            bytes[begin + place] ^= 0x41;
            fs::write(&file.0, &bytes).expect("a file");
            let before = 0..damaged as u64;
            let behind = if damaged < 60 { 60..63 } else { 0..0 };
            let expected: Vec<_> = before.chain(behind).collect();
            let mut recording = Recording::open(&file.0).expect("a recording");
            assert_eq!(
                seconds(&mut recording),
                expected,
                "byte {place} of frame {damaged}"
            );
            let damages = recording.damages();
            assert_eq!(damages[0].offset, begin as u64);
            assert_eq!(damages[0].before, damaged);
            let lost = if damaged < 60 {
                59 - damaged
            } else {
                62 - damaged
            };
            assert_eq!(damages.iter().map(|it| it.lost).sum::<usize>(), lost);
            assert!(recording.damage().is_some());
        }
    }
}

#[test]
fn a_recording_is_continued_behind_a_cut_frame() {
    let file = Scratch::new("continued");
    record(&file.0, 0..3);
    let whole = fs::read(&file.0).expect("a file");
    fs::write(&file.0, &whole[..whole.len() - 1]).expect("a file");
    record(&file.0, 10..12);
    assert_eq!(replayed(&file.0), [0, 1, 10, 11]);
    // One that was killed as it began.
    fs::write(&file.0, &MAGIC[..5]).expect("a file");
    record(&file.0, 0..2);
    assert_eq!(replayed(&file.0), [0, 1]);
}

#[test]
fn other_files_are_neither_overwritten_nor_replayed() {
    let file = Scratch::new("other");
    fs::write(&file.0, "root:x:0:0:root:/root:/bin/sh\n").expect("a file");
    let error = format!("{:#}", Writer::open(&file.0).err().expect("another file"));
    assert!(
        error.contains("it is no recording of weir top: name another file"),
        "{error}"
    );
    assert!(Recording::open(&file.0).is_err());
    assert!(fs::read(&file.0).expect("a file").starts_with(b"root:"));
    let device = format!(
        "{:#}",
        Writer::open(Path::new("/dev/null"))
            .err()
            .expect("a device")
    );
    assert!(device.contains("not a regular file"), "{device}");
}

#[test]
fn two_do_not_record_to_one_file() {
    let file = Scratch::new("two");
    let _first = Writer::open(&file.0).expect("a recording");
    let error = format!("{:#}", Writer::open(&file.0).err().expect("a second one"));
    assert!(error.contains("another weir top records to it"), "{error}");
}

#[test]
fn marks_without_frames_take_bounded_work() {
    let file = Scratch::new("marks");
    record(&file.0, 0..1);
    let mut bytes = fs::read(&file.0).expect("a file");
    // Headers that claim all of the rest.
    let mut header = [0; BYTES];
    header[..4].copy_from_slice(super::header::MARK);
    header[4..8].copy_from_slice(&(1_u32 << 19).to_le_bytes());
    for _ in 0..100_000 {
        bytes.extend_from_slice(&header);
    }
    fs::write(&file.0, &bytes).expect("a file");
    assert_eq!(replayed(&file.0), [0]);
}
