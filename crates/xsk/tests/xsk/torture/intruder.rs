//! This program as another process, which overwrites the rings of a socket whose descriptor is its standard input.

use super::failure::{Check, Result, fail};
use fastrand::Rng;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use xsk::Socket;
use xsk::testing::kernel::{Ring, Word};
use xsk::testing::raw::{self, Intruder};

/// The word that makes this program an intruder, after that of torture. After it come a seed, the bytes of the UMEM and the slots of each
/// ring.
pub const WORD: &str = "intruder";

const RINGS: [Ring; 4] = [Ring::Fill, Ring::Completion, Ring::Rx, Ring::Tx];

/// What it says when it has the rings.
const READY: &str = "ready";

/// A process that overwrites the rings of a socket.
pub struct Process(Child);

impl Process {
    /// Starts one, and returns when it has the rings.
    pub fn start(socket: &Socket, random: &mut Rng) -> Result<Self> {
        let (umem, seed) = (socket.umem(), random.u64(..));
        let bytes = u64::from(umem.chunks()) * u64::from(umem.chunk_size());
        let slots = RINGS.map(|ring| u64::from(raw::ring_size(socket, ring).unwrap_or(0)));
        let descriptor = raw::descriptor(socket).try_clone_to_owned()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([super::WORD, WORD])
            .args([seed, bytes].iter().chain(&slots).map(u64::to_string))
            .stdin(descriptor)
            .stdout(Stdio::piped());
        let mut child = Self(command.spawn()?);
        let mut line = String::new();
        if let Some(output) = child.0.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line.trim_end() != READY {
            return fail(Check::Call, format!("the other process said {line:?}"));
        }
        Ok(child)
    }

    /// Ends it, which must have gone on until now.
    pub fn end(mut self) -> Result<()> {
        if let Some(status) = self.0.try_wait()? {
            return fail(Check::Call, format!("the other process ended: {status}"));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Overwrites rings until it is killed.
pub fn run(words: &[String]) -> ExitCode {
    match overwrite_all(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("{}", failure.text);
            ExitCode::FAILURE
        }
    }
}

fn overwrite_all(words: &[String]) -> Result<()> {
    // It must not outlive a killed program.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [seed, bytes, slots @ ..] = &numbers[..] else {
        return fail(Check::Call, "an intruder needs a seed, a size and slots");
    };
    let mut intruders = Vec::new();
    for (ring, &slots) in RINGS.into_iter().zip(slots) {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        intruders.push(Intruder::map_descriptor(socket, ring, slots as u32)?);
    }
    let mut random = Rng::with_seed(*seed);
    let mut output = std::io::stdout();
    writeln!(output, "{READY}")?;
    output.flush()?;
    loop {
        if let Some(intruder) = random.choice(&intruders) {
            overwrite(intruder, *bytes, &mut random);
        }
        std::thread::sleep(Duration::from_micros(random.u64(..200)));
    }
}

/// Overwrites an index, or a slot near the indices.
fn overwrite(intruder: &Intruder, len: u64, random: &mut Rng) {
    let words = [Word::Consumer, Word::Producer];
    let word = random.choice(words).expect("one");
    let now = intruder.get(word);
    match random.u8(..8) {
        0 => intruder.set(word, random.u32(..)),
        1 | 2 => intruder.set(word, now.wrapping_add_signed(random.i32(-64..64))),
        3 => intruder.set(Word::Flags, random.u32(..)),
        _ => {
            let (any_addr, any_len) = (random.u8(..4) == 0, random.u8(..4) == 0);
            let addr = random.u64(..if any_addr { u64::MAX } else { len });
            let bytes = random.u32(..if any_len { u32::MAX } else { 2048 });
            intruder.write(
                now.wrapping_add(random.u32(..16)),
                addr,
                bytes,
                random.u32(..4),
            );
        }
    }
}
