//! Returns every packet to its sender, also after the device was removed, moved or detached from its
//! program, and is there again: `rebind DEVICE`.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xsk::{DeviceWatch, Interest, Socket, SocketBuilder, Umem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).ok_or("usage: rebind DEVICE")?;
    let umem = Umem::builder().build()?;
    let builder = Socket::builder(&umem, &device, 0);
    // Before the socket, so that no change is missed.
    let mut watch = DeviceWatch::new(&device)?;
    let mut socket = None;
    let mut stale = true;
    loop {
        while let Some(event) = watch.next()? {
            eprintln!("{device}: {event}");
            stale = true;
        }
        if stale {
            rebind(&builder, &mut socket)?;
        }
        sleep(&watch, socket.as_mut())?;
        // The watch wakes a silent program, too, to see whether its socket still works.
        stale = match &mut socket {
            Some(socket) => echo(socket)? == 0,
            None => true,
        };
    }
}

/// Gets a socket that works, if the device has one to give.
fn rebind(builder: &SocketBuilder, socket: &mut Option<Socket>) -> xsk::Result<()> {
    match builder.rebind(socket) {
        Ok(is_new) if is_new => eprintln!("a new socket"),
        Ok(_) => {}
        Err(error) if error.kind().may_pass() => eprintln!("{error}"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Sleeps until the device may have changed, or there are packets.
fn sleep(
    watch: &DeviceWatch,
    socket: Option<&mut Socket>,
) -> Result<(), Box<dyn std::error::Error>> {
    let watched = PollFd::new(watch, PollFlags::IN);
    let Some(socket) = socket else {
        poll(&mut [watched], None)?;
        return Ok(());
    };
    let most = match socket.prepare_to_wait(Interest::Receive) {
        Ok(ready) if ready.any() => return Ok(()),
        Ok(ready) => ready.sleep_at_most.map(Timespec::try_from).transpose()?,
        // The watch has the reason.
        Err(error) if error.kind().may_pass() => None,
        Err(error) => return Err(error.into()),
    };
    poll(
        &mut [watched, PollFd::new(socket, PollFlags::IN)],
        most.as_ref(),
    )?;
    Ok(())
}

/// Returns the number of packets.
fn echo(socket: &mut Socket) -> xsk::Result<usize> {
    let mut batch = socket.recv(64);
    let count = batch.len();
    while let Some(mut packet) = batch.next_packet() {
        if let Some((to, from)) = packet.get_mut(..12).map(|macs| macs.split_at_mut(6)) {
            to.swap_with_slice(from);
            // When the TX ring is full, the packet is dropped.
            let _ = packet.send();
        }
    }
    drop(batch);
    match socket.flush() {
        // Until the next event.
        Err(error) if error.kind().may_pass() => Ok(count),
        flushed => flushed.map(|()| count),
    }
}
