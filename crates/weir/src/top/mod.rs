//! `weir top`: a live view of the packet path, and its recordings.
//!
//! A [`Frame`](frame::Frame) has all counters of the host at one moment. [`view`] makes tables of the difference of
//! two, [`draw`] draws them, [`record`] keeps them in a file. The screen is a function of frames and of the
//! keys that were pressed ([`state`]), so a recording is shown as the host was.

pub mod collector;
pub mod draw;
pub mod frame;
pub mod key;
pub mod live;
pub mod once;
pub mod priced;
pub mod record;
pub mod sample;
pub mod state;
pub mod table;
pub mod terminal;
pub mod view;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod pictures;
