//! The extent of a packet in its chunk.

use crate::error::Error;

/// The position of a packet in its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte, from the start of the chunk.
    pub(crate) offset: u32,
    /// Number of bytes.
    pub(crate) len: u32,
}

impl Extent {
    /// Whether the packet ends inside a chunk of this size.
    #[inline]
    pub(crate) fn fits(self, chunk_size: u32) -> bool {
        self.offset
            .checked_add(self.len)
            .is_some_and(|end| end <= chunk_size)
    }

    /// See [`Frame::adjust_head`](crate::Frame::adjust_head).
    #[inline]
    pub(crate) fn adjust_head(&mut self, delta: i32, least: u32) -> Result<(), Error> {
        let end = self.offset + self.len;
        let offset = self.offset.wrapping_add_signed(delta);
        // One comparison for both ends: an offset below the least wraps around.
        if offset.wrapping_sub(least) > end.wrapping_sub(least) || end < least {
            return Err(self.out_of_room("head", delta, self.offset.saturating_sub(least)));
        }
        let len = end - offset;
        *self = Self { offset, len };
        Ok(())
    }

    /// See [`Frame::adjust_tail`](crate::Frame::adjust_tail).
    #[inline]
    pub(crate) fn adjust_tail(&mut self, delta: i32, chunk_size: u32) -> Result<(), Error> {
        let capacity = chunk_size - self.offset;
        match self.len.checked_add_signed(delta) {
            Some(len) if len <= capacity => {
                self.len = len;
                Ok(())
            }
            _ => Err(self.out_of_room("tail", delta, capacity - self.len)),
        }
    }

    /// See [`Frame::resize`](crate::Frame::resize).
    #[inline]
    pub(crate) fn resize(&mut self, len: usize, chunk_size: u32) -> Result<(), Error> {
        let capacity = chunk_size - self.offset;
        if len > capacity as usize {
            return Err(too_long(len, capacity));
        }
        self.len = len as u32;
        Ok(())
    }

    #[cold]
    fn out_of_room(self, end: &str, delta: i32, room: u32) -> Error {
        Error::invalid(format!(
            "cannot move the packet's {end} by {delta}: it has {} bytes and {room} bytes of room there",
            self.len
        ))
    }
}

#[cold]
fn too_long(len: usize, capacity: u32) -> Error {
    Error::invalid(format!(
        "a packet of {len} bytes does not fit: the frame has room for {capacity}"
    ))
}

#[cfg(test)]
mod tests {
    use super::Extent;

    #[test]
    fn a_packet_past_its_chunk_does_not_fit() {
        for (offset, len) in [(2000, 49), (0, 2049), (1, u32::MAX), (u32::MAX, 1)] {
            assert!(!Extent { offset, len }.fits(2048));
        }
        assert!(
            Extent {
                offset: 2000,
                len: 48
            }
            .fits(2048)
        );
    }
}
