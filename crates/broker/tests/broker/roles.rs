//! Roles of this program as a tenant.

use crate::supervised::Result;
use std::io::BufRead as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use xsk::broker::Request;
use xsk::{Socket, Wait};

/// The environment variable that says the role.
pub const ROLE: &str = "WEIR_BROKER_TEST_ROLE";

/// Plays a role.
pub fn play(role: &str) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match role {
        "echo" => echo(&arguments),
        "hold" => hold(&arguments),
        "supervised" => supervised(&arguments),
        "many" => many(&arguments),
        "acquire" => acquire(&arguments),
        "again" => again(&arguments),
        "held" => crate::held::play(&arguments),
        "hoard" => crate::budget::hoard(&arguments),
        "waits" => crate::budget::waits(&arguments),
        "rogue" => crate::rogue::play(&arguments),
        "tree" => crate::containers::tree(&arguments),
        "leaf" => crate::containers::leaf(&arguments),
        "probe" => crate::grants::probe(&arguments),
        "asks" => crate::deputy::asks(&arguments),
        "plays_runtime" => crate::deputy::plays_runtime(),
        "landlocked" => crate::deputy::landlocked(&arguments),
        "sandbox" => crate::deputy::sandbox(&arguments),
        "contained" => crate::grants::contained(&arguments),
        "plugin" => crate::plugin::client(&arguments),
        _ => Err(format!("no role {role}").into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `DEVICE QUEUE [LEASE [CHUNKS]]`
pub fn request(arguments: &[String]) -> Result<Request> {
    let word = |at: usize| arguments.get(at).map(String::as_str);
    let mut request = Request::new(word(0).ok_or("a device")?)
        .wait(Wait::Poll)
        .chunks(256)
        .rings(64);
    if let Some(queue) = word(1).filter(|queue| *queue != "any") {
        request = request.queue(queue.parse()?);
    }
    request = match word(2) {
        Some("rx") => request.receive_only(),
        Some("tx") => request.send_only(),
        _ => request,
    };
    if let Some(chunks) = word(3) {
        request = request.chunks(chunks.parse()?);
    }
    Ok(request)
}

fn open(arguments: &[String]) -> Result<Socket> {
    let began = Instant::now();
    let socket = request(arguments)?.open()?;
    println!(
        "ready queue {} mode {} in {} us",
        socket.queue(),
        socket.mode(),
        began.elapsed().as_micros()
    );
    Ok(socket)
}

/// Whether there is still somebody who wants this process.
pub fn wanted() -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin()
            .lock()
            .lines()
            .map_while(std::io::Result::ok)
        {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns packets to their sender until the input ends; prints how many.
fn echo(arguments: &[String]) -> Result<()> {
    let mut socket = open(arguments)?;
    let told = wanted();
    let mut count = 0_u64;
    loop {
        match told.try_recv() {
            Ok(_) => println!("count {count}"),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        socket.wait(Duration::from_millis(10))?;
        let mut batch = socket.recv(64);
        while let Some(mut packet) = batch.next_packet() {
            count += 1;
            if let Some((to, from)) = packet.get_mut(..12).map(|macs| macs.split_at_mut(6)) {
                to.swap_with_slice(from);
                let _ = packet.send();
            }
        }
        drop(batch);
        socket.flush()?;
    }
    println!("count {count}");
    Ok(())
}

/// Holds a socket until the input ends. A line `copy` makes a child that holds it as well, for as long as
/// the child's input, an inherited one, is open; `send` tries to send.
fn hold(arguments: &[String]) -> Result<()> {
    let mut socket = open(arguments)?;
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "send" => {
                let mut frame = socket.alloc().ok_or("a frame")?;
                frame.adjust_tail(64)?;
                let sent = socket.send(frame).is_ok();
                println!("sent {sent}");
            }
            "receive" => println!("received {}", socket.recv(64).len()),
            other => println!("what is {other:?}"),
        }
    }
    Ok(())
}

/// `DEVICE FIRST COUNT`: holds many sockets.
fn many(arguments: &[String]) -> Result<()> {
    let number = |at: usize| -> Result<u32> { Ok(arguments.get(at).ok_or("a number")?.parse()?) };
    let device = arguments.first().ok_or("a device")?;
    let mut sockets = Vec::new();
    let mut micros = Vec::new();
    for queue in number(1)?..number(1)? + number(2)? {
        let began = Instant::now();
        let request = Request::new(device)
            .queue(queue)
            .chunks(64)
            .rings(32)
            .wait(Wait::Poll);
        sockets.push(request.open()?);
        micros.push(began.elapsed().as_micros());
    }
    micros.sort_unstable();
    println!(
        "ready {} median {} us",
        sockets.len(),
        micros.get(micros.len() / 2).copied().unwrap_or(0)
    );
    for _ in std::io::stdin().lock().lines() {}
    Ok(())
}

/// `DEVICE QUEUE COUNT CHUNKS`: opens and closes a socket, and prints the median time of opening it.
fn acquire(arguments: &[String]) -> Result<()> {
    let [device, queue, count, chunks] = arguments else {
        return Err("DEVICE QUEUE COUNT CHUNKS".into());
    };
    let request = Request::new(device)
        .queue(queue.parse()?)
        .chunks(chunks.parse()?);
    let mut micros = Vec::new();
    for _ in 0..count.parse()? {
        let began = Instant::now();
        let socket = request.open()?;
        micros.push(began.elapsed().as_micros());
        drop(socket);
        // The kernel releases the queue, and the broker makes memory for the next.
        std::thread::sleep(Duration::from_millis(30));
    }
    micros.sort_unstable();
    let at = |share: usize| micros.get(micros.len() * share / 100).copied();
    println!(
        "socket of {chunks} chunks: median {:?} us, 90% {:?} us",
        at(50),
        at(90)
    );
    Ok(())
}

/// Asks for a queue until it is free, and holds it.
fn again(arguments: &[String]) -> Result<()> {
    let request = request(arguments)?;
    println!("waiting");
    let socket = loop {
        match request.open() {
            Ok(socket) => break socket,
            Err(error) if error.kind() == xsk::ErrorKind::QueueBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    };
    println!("ready queue {}", socket.queue());
    for _ in std::io::stdin().lock().lines() {}
    Ok(())
}

/// `PROGRAM [ARGUMENTS]`: becomes the program under the broker's supervision, as `weir run` does.
fn supervised(arguments: &[String]) -> Result<()> {
    let (program, arguments) = arguments.split_first().ok_or("a program")?;
    let broker = std::env::var("WEIR_BROKER")?;
    broker::supervise::run::supervise(broker.as_ref(), None)?;
    Err(Command::new(program).args(arguments).exec().into())
}
