//! A card in memory, for tests of requests that no device of a test machine takes: flow rules, and
//! changes by others. It answers as net/ethtool/ioctl.c and a driver with 4 queues do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::ioctl::{Driver, Request};
use crate::error::{Error, Result};

const RINGS: u32 = 4;
const RULES: u32 = 16;
/// Words of `struct ethtool_rxnfc` and `struct ethtool_rxfh`, from gcc's offsets.
const DATA: usize = 2;
const SPEC: std::ops::Range<usize> = 4..46;
const COOKIE: usize = 42;
const LOCATION: usize = 44;
const RULE_COUNT: usize = 46;
const LOCATIONS: usize = 47;
const TABLE: usize = 6;
const TRANSFORMATION: usize = 17;

#[derive(Clone)]
pub(super) struct Card(Arc<Mutex<State>>);

pub(super) struct State {
    pub(super) table: Vec<u32>,
    pub(super) key: Vec<u8>,
    /// `input_xfrm`.
    pub(super) transformation: u8,
    pub(super) rules: BTreeMap<u32, Vec<u32>>,
    /// Whether the table is as the kernel fills it (`rss_indir_user_size` is 0).
    pub(super) table_is_default: bool,
    pub(super) chooses_locations: bool,
    /// The error of each change of flow rules.
    pub(super) refusal: Option<Errno>,
    /// `rx-ntuple-filter`: available, and on.
    pub(super) ntuple: [bool; 2],
    /// The last request that changed a setting.
    pub(super) changed: Vec<u8>,
}

impl Card {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            table: (0..8).map(|entry| entry % RINGS).collect(),
            key: (0..40).collect(),
            transformation: 0,
            rules: BTreeMap::new(),
            table_is_default: true,
            chooses_locations: false,
            refusal: None,
            ntuple: [true, true],
            changed: Vec::new(),
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Card {
    fn device(&self) -> &'static str {
        "eth0"
    }

    fn call(&self, request: &mut Request) -> Result<()> {
        let answer = self.state().answer(request);
        answer.map_err(|errno| Error::os(errno, ""))
    }
}

impl State {
    fn answer(&mut self, request: &mut Request) -> Result<(), Errno> {
        let sent = request.bytes().to_vec();
        match request[0] {
            0x2d => request[DATA] = RINGS,
            0x2e => {
                request[RULE_COUNT] = self.rules.len() as u32;
                request[DATA] = u32::from(self.chooses_locations) << 31;
            }
            0x2f => {
                let rule = self.rules.get(&request[LOCATION]).ok_or(Errno::NOENT)?;
                request[SPEC].copy_from_slice(rule);
            }
            0x30 => {
                request[DATA] = RULES;
                for (to, location) in request[LOCATIONS..].iter_mut().zip(self.rules.keys()) {
                    *to = *location;
                }
            }
            0x31 => {
                self.rules.remove(&request[LOCATION]).ok_or(Errno::NOENT)?;
                self.changed = sent;
            }
            0x32 => {
                self.insert(request)?;
                self.changed = sent;
            }
            0x46 => self.read_rss(request)?,
            0x47 => {
                self.write_rss(request)?;
                self.changed = sent;
            }
            // The features: one of them, the flow rules.
            0x37 => request[4] = 1,
            0x1b => request.bytes_mut()[12..28].copy_from_slice(b"rx-ntuple-filter"),
            0x3a => {
                request[2] = u32::from(self.ntuple[0]);
                request[4] = u32::from(self.ntuple[1]);
            }
            _ => return Err(Errno::OPNOTSUPP),
        }
        Ok(())
    }

    fn insert(&mut self, request: &mut Request) -> Result<(), Errno> {
        if let Some(errno) = self.refusal {
            return Err(errno);
        }
        if request[LOCATION] == u32::MAX {
            assert!(self.chooses_locations, "the card was asked to choose");
            request[LOCATION] = 7;
        }
        assert!(request[COOKIE] < RINGS, "a queue of the card");
        self.rules.insert(request[LOCATION], request[SPEC].to_vec());
        Ok(())
    }

    fn read_rss(&self, request: &mut Request) -> Result<(), Errno> {
        let (entries, key) = (self.table.len(), self.key.len());
        if [request[2], request[3]] == [0, 0] {
            request[2] = entries as u32;
            request[3] = key as u32;
            return Ok(());
        }
        if [request[2], request[3]] != [entries as u32, key as u32] {
            return Err(Errno::INVAL);
        }
        request.bytes_mut()[TRANSFORMATION] = self.transformation;
        request[TABLE..TABLE + entries].copy_from_slice(&self.table);
        let start = 4 * (TABLE + entries);
        request.bytes_mut()[start..start + key].copy_from_slice(&self.key);
        Ok(())
    }

    fn write_rss(&mut self, request: &Request) -> Result<(), Errno> {
        let entries = self.table.len();
        let key_start = match request[2] {
            0 => {
                self.table = (0..RINGS).cycle().take(entries).collect();
                self.table_is_default = true;
                TABLE
            }
            u32::MAX => TABLE,
            size if size as usize == entries => {
                self.table = request[TABLE..TABLE + entries].to_vec();
                self.table_is_default = false;
                TABLE + entries
            }
            _ => return Err(Errno::INVAL),
        };
        self.transformation = request.bytes()[TRANSFORMATION];
        if request[3] > 0 {
            self.key = request.bytes()[4 * key_start..][..request[3] as usize].to_vec();
        }
        Ok(())
    }
}

/// The request that follows this command in `tests/recordings`.
pub(super) fn recorded(command: &str) -> Vec<u8> {
    const RECORDINGS: &str = include_str!("../../tests/recordings/ethtool-6.1.txt");
    let (_, request) = RECORDINGS
        .split_once(&format!("$ {command}\n"))
        .unwrap_or_else(|| panic!("no recording of {command}"));
    let request = request.split("\n\n").next().unwrap_or_default();
    request
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte in hexadecimal"))
        .collect()
}
