//! Receiving and freeing frames by arrays.

use super::Socket;
use super::half::RxHalf;
use crate::frame::Frame;

impl Socket {
    /// Receives up to `max` packets as frames, which are appended to `frames`. Returns their number.
    /// So several packets can be looked at together, for instance to look up all their addresses
    /// before the first is changed.
    pub fn recv_frames(&mut self, frames: &mut Vec<Frame>, max: u32) -> usize {
        let before = frames.len();
        self.receive_each(max, |packet| {
            let (frame, done) = packet.keep();
            frames.push(frame);
            done
        });
        frames.len() - before
    }

    /// Frees frames for this socket's next packets, without the atomic operations of dropping them.
    pub fn free_frames(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            self.sender.cache.put(frame.into_chunk());
        }
    }
}

impl RxHalf {
    /// Same as [`Socket::recv_frames`].
    pub fn recv_frames(&mut self, frames: &mut Vec<Frame>, max: u32) -> usize {
        let before = frames.len();
        self.receive_each(max, |packet| {
            let (frame, done) = packet.keep();
            frames.push(frame);
            done
        });
        frames.len() - before
    }

    /// Same as [`Socket::free_frames`].
    pub fn free_frames(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            self.cache.put(frame.into_chunk());
        }
    }
}
