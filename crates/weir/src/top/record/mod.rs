//! Recordings: frames in a file that is only appended to, so that it can be read after a `kill -9`.
//!
//! A file begins with [`MAGIC`](header::MAGIC). Each frame is a [`Header`](header::Header), which has the length and the checksum of
//! its body, and the body: JSON, compressed by DEFLATE. That of a keyframe is a [`Frame`](super::frame::Frame), that
//! of the others the difference to the frame before. A keyframe comes each minute and when a file is opened anew.

pub mod delta;
pub mod header;
pub mod reader;
pub mod writer;

pub use reader::Recording;
pub use writer::Writer;

#[cfg(test)]
mod tests;
