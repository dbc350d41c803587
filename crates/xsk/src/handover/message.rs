//! The description of a socket, as bytes.
//!
//! Integers are little-endian. A reader takes nothing on trust: it returns a description in which each
//! value is one that this library could have written.

use crate::builder::{check_ring, check_rings};
use crate::device::AttachMode;
use crate::error::{Error, ErrorKind, Result};
use crate::socket::{ModeObtained, RingSizes, State};
use crate::tx_metadata::TxSupport;
use crate::umem::{DeviceQueue, Geometry, Place};
use crate::wait::Wait;
use std::time::Duration;

/// The first bytes.
const MAGIC: [u8; 4] = *b"xsk\0";

/// Of the form below; a change of it is another version.
const VERSION: u32 = 5;

/// Chunks whose places are in one byte.
const PLACES_PER_BYTE: u32 = 4;

/// A socket without its descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) geometry: Geometry,
    pub(super) state: State,
    /// The mode of the built-in program, if its link goes along.
    pub(super) program: Option<AttachMode>,
    /// The number of the message, of which a process makes one socket.
    pub(super) ticket: u64,
}

/// Length of a message in bytes, which is in its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Length(pub(super) usize);

impl Length {
    /// Bytes of the beginning.
    pub(super) const BYTES: usize = 12;

    /// Most bytes of a message: a few for the fixed part, and the places of 2²⁴ chunks.
    const MOST: usize = 256 + (1 << 22);

    /// Reads the beginning of a message.
    pub(super) fn read(beginning: &[u8]) -> Result<Self> {
        let mut reader = Reader(beginning);
        if reader.array()? != MAGIC {
            return Err(malformed("it does not begin as one"));
        }
        let version = reader.u32()?;
        if version != VERSION {
            let message = format!(
                "the other process describes sockets in version {version}, and this one in {VERSION}: use the same version of the xsk library in both"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        match reader.u32()? as usize {
            length @ Self::BYTES..=Self::MOST => Ok(Self(length)),
            _ => Err(malformed("its length is impossible")),
        }
    }
}

impl Description {
    /// The message, which says whether an XSKMAP goes along.
    pub(super) fn write(&self, has_map: bool) -> Vec<u8> {
        let Self {
            geometry,
            state,
            program,
            ticket,
        } = self;
        let RingSizes {
            rx,
            tx,
            fill,
            completion,
        } = state.rings;
        let (wait, max_delay) = match state.wait {
            Wait::Spin => (0, Duration::ZERO),
            Wait::Poll => (1, Duration::ZERO),
            Wait::Adaptive { max_delay } => (2, max_delay),
            Wait::BusyPoll => (3, Duration::ZERO),
        };
        let words = [
            geometry.chunks,
            geometry.chunk_size,
            geometry.headroom,
            rx,
            tx,
            fill,
            completion,
            state.fill_chunks,
            state.queue.ifindex,
            state.queue.queue,
            number(&MODES, &state.mode),
            wait,
            program.map_or(0, |mode| 1 + number(&ATTACH_MODES, &mode)),
            u32::from(has_map),
            u32::from(geometry.fragments),
            u32::from(geometry.tx_metadata),
            u32::from(geometry.unaligned),
            state.tx_support.bits(),
            u32::from(state.rx_hints),
        ];
        let mut rest: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let max_delay = u64::try_from(max_delay.as_nanos()).unwrap_or(u64::MAX);
        rest.extend(max_delay.to_le_bytes());
        rest.extend(ticket.to_le_bytes());
        rest.extend(pack(&state.places));

        let length = (Length::BYTES + rest.len()) as u32;
        let mut message = MAGIC.to_vec();
        message.extend(VERSION.to_le_bytes());
        message.extend(length.to_le_bytes());
        message.extend(rest);
        message
    }

    /// Reads a message; returns also whether an XSKMAP goes along.
    pub(super) fn read(message: &[u8]) -> Result<(Self, bool)> {
        if Length::read(message)?.0 != message.len() {
            return Err(malformed("it is cut off"));
        }
        let mut reader = Reader(message.get(Length::BYTES..).unwrap_or_default());
        let mut geometry = Geometry {
            chunks: reader.u32()?,
            chunk_size: reader.u32()?,
            headroom: reader.u32()?,
            fragments: false,
            tx_metadata: false,
            unaligned: false,
        };
        let rings = RingSizes {
            rx: reader.u32()?,
            tx: reader.u32()?,
            fill: reader.u32()?,
            completion: reader.u32()?,
        };
        check_rings(rings.rx, rings.tx)?;
        check_ring("FILL", rings.fill, false)?;
        check_ring("COMPLETION", rings.completion, false)?;
        let fill_chunks = reader.u32()?;
        // The giver's namespace may be another one.
        let queue = DeviceQueue {
            namespace: None,
            ifindex: reader.u32()?,
            queue: reader.u32()?,
            is_shown: false,
        };
        let mode = value(&MODES, reader.u32()?)?;
        let wait = reader.u32()?;
        let program = match reader.u32()? {
            0 => None,
            number => Some(value(&ATTACH_MODES, number - 1)?),
        };
        let has_map = value(&[false, true], reader.u32()?)?;
        geometry.fragments = value(&[false, true], reader.u32()?)?;
        geometry.tx_metadata = value(&[false, true], reader.u32()?)?;
        geometry.unaligned = value(&[false, true], reader.u32()?)?;
        geometry.check()?;
        let tx_support = TxSupport::from_bits(reader.u32()?);
        let rx_hints = value(&[false, true], reader.u32()?)?;
        let max_delay = Duration::from_nanos(reader.u64()?);
        let ticket = reader.u64()?;
        let adaptive = Wait::Adaptive { max_delay };
        let wait = value(&[Wait::Spin, Wait::Poll, adaptive, Wait::BusyPoll], wait)?;
        let places = unpack(reader.0, geometry.chunks)?;
        let state = State {
            rings,
            fill_chunks,
            queue,
            mode,
            wait,
            tx_support,
            rx_hints,
            places,
        };
        if program.is_some() && !has_map {
            return Err(malformed("it has a program without an XSKMAP"));
        }
        let description = Self {
            geometry,
            state,
            program,
            ticket,
        };
        Ok((description, has_map))
    }
}

const MODES: [ModeObtained; 4] = [
    ModeObtained::Skb,
    ModeObtained::Driver,
    ModeObtained::ZeroCopy,
    ModeObtained::Copy,
];

const ATTACH_MODES: [AttachMode; 3] = [AttachMode::Skb, AttachMode::Driver, AttachMode::Hardware];

const PLACES: [Place; 4] = [
    Place::Free,
    Place::Receiving,
    Place::Sending,
    Place::Retired,
];

/// The number of a value in a table that has it.
fn number<T: PartialEq>(table: &[T], value: &T) -> u32 {
    let at = table.iter().position(|entry| entry == value);
    at.map_or(u32::MAX, |at| at as u32)
}

fn value<T: Copy>(table: &[T], number: u32) -> Result<T> {
    let value = table.get(number as usize).copied();
    value.ok_or_else(|| malformed("it has an unknown mode"))
}

fn pack(places: &[Place]) -> impl Iterator<Item = u8> {
    places.chunks(PLACES_PER_BYTE as usize).map(|four| {
        let bits = four.iter().enumerate();
        bits.fold(0, |byte, (at, place)| {
            byte | (number(&PLACES, place) as u8) << (2 * at)
        })
    })
}

fn unpack(bytes: &[u8], chunks: u32) -> Result<Vec<Place>> {
    if bytes.len() != chunks.div_ceil(PLACES_PER_BYTE) as usize {
        return Err(malformed("it has not as many places as chunks"));
    }
    let four = |byte: u8| (0..PLACES_PER_BYTE).map(move |at| (byte >> (2 * at)) & 3);
    let places = bytes.iter().copied().flat_map(four);
    places
        .take(chunks as usize)
        .map(|bits| value(&PLACES, bits.into()))
        .collect()
}

fn malformed(fault: &str) -> Error {
    Error::invalid(format!(
        "the message does not describe a socket: {fault}; pass it as `Parts` made it"
    ))
}

/// The bytes not read yet.
struct Reader<'m>(&'m [u8]);

impl Reader<'_> {
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let (first, rest) = self
            .0
            .split_first_chunk()
            .ok_or_else(|| malformed("it is cut off"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn description() -> Description {
        let places = [Place::Retired, Place::Free, Place::Sending];
        Description {
            geometry: Geometry {
                chunks: 9,
                chunk_size: 2048,
                headroom: 32,
                fragments: true,
                tx_metadata: true,
                unaligned: false,
            },
            state: State {
                rings: RingSizes {
                    rx: 0,
                    tx: 64,
                    fill: 8,
                    completion: 64,
                },
                fill_chunks: 5,
                queue: DeviceQueue {
                    namespace: None,
                    is_shown: false,
                    ifindex: 3,
                    queue: 7,
                },
                mode: ModeObtained::Driver,
                wait: Wait::default(),
                tx_support: TxSupport::from_bits(5),
                rx_hints: true,
                places: places.into_iter().cycle().take(9).collect(),
            },
            program: Some(AttachMode::Driver),
            ticket: 0x0123_4567_89ab_cdef,
        }
    }

    #[test]
    fn a_description_survives_the_way() {
        let mut there = description();
        for wait in [Wait::Spin, Wait::Poll, Wait::adaptive(), Wait::BusyPoll] {
            there.state.wait = wait;
            let message = there.write(true);
            let length = Length::read(&message).expect("the beginning");
            assert_eq!(length.0, message.len());
            let here = Description::read(&message).expect("a description");
            assert_eq!(here, (there.clone(), true));
        }
    }

    #[test]
    fn each_cut_is_an_error() {
        let message = description().write(true);
        for length in 0..message.len() {
            assert!(Description::read(&message[..length]).is_err());
        }
        let longer = [message.as_slice(), &[0]].concat();
        assert!(Description::read(&longer).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let mut message = description().write(false);
        message[4] = 9;
        let error = Description::read(&message).expect_err("version 9");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 1024 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Any message is an error, or has possible values only, and is then written again as it was.
        #[test]
        fn a_changed_message_is_refused_or_possible(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut message = description().write(true);
            for (at, byte) in changes {
                let at = at.index(message.len());
                message[at] = byte;
            }
            if let Ok((read, has_map)) = Description::read(&message) {
                prop_assert!(read.geometry.check().is_ok());
                prop_assert_eq!(read.state.places.len(), read.geometry.chunks as usize);
                let again = Description::read(&read.write(has_map)).expect("possible values");
                prop_assert_eq!(again, (read, has_map));
            }
        }

        #[test]
        fn no_bytes_panic(rest in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut message = description().write(true)[..8].to_vec();
            message.extend((rest.len() as u32 + 12).to_le_bytes());
            message.extend(rest);
            let _ = Description::read(&message);
        }
    }
}
