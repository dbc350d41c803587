//! Frames in the program's hands, each of which is noted with its chunk, so that a chunk in two hands is found
//! at once.

use super::failure::{Check, Result, ensure, fail};
use super::packet::{self, Header};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xsk::testing::raw;
use xsk::{Frame, Umem};

/// For each chunk of a UMEM whether the program holds it.
#[derive(Debug, Clone)]
pub struct Hands {
    held: Arc<[AtomicBool]>,
    chunk_size: u64,
}

impl Hands {
    pub fn of(umem: &Umem) -> Self {
        Self {
            held: (0..umem.chunks()).map(|_| AtomicBool::new(false)).collect(),
            chunk_size: u64::from(umem.chunk_size()),
        }
    }

    fn entry(&self, frame: &Frame) -> &AtomicBool {
        &self.held[(raw::chunk_address(frame) / self.chunk_size) as usize]
    }

    /// Takes a frame that the library has just given out.
    pub fn hold(&self, frame: Frame) -> Result<Held> {
        if self.entry(&frame).swap(true, Ordering::AcqRel) {
            let chunk = raw::chunk_address(&frame);
            return fail(
                Check::Holder,
                format!("the chunk at {chunk:#x} was given out twice"),
            );
        }
        Ok(Held {
            frame: Some(frame),
            hands: self.clone(),
        })
    }
}

/// A frame that is noted as held until it is dropped or given back.
#[derive(Debug)]
pub struct Held {
    /// There until it is given back.
    frame: Option<Frame>,
    hands: Hands,
}

impl Held {
    /// The frame, to change it.
    pub fn frame(&mut self) -> &mut Frame {
        self.frame.as_mut().expect("it is given back once")
    }

    /// The frame, for the library.
    pub fn give_back(mut self) -> Frame {
        let frame = self.frame.take().expect("it is given back once");
        self.hands.entry(&frame).store(false, Ordering::Release);
        frame
    }

    /// Fails if the packet is no longer the one that was kept.
    pub fn check(&mut self, kept: Header) -> Result<()> {
        let now = packet::check(self.frame())?;
        ensure(now == kept, Check::Payload, || {
            format!("a held frame of {kept:?} is {now:?} now")
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.hands.entry(&frame).store(false, Ordering::Release);
        }
    }
}
