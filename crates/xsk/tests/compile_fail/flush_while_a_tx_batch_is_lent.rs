fn misuse(socket: &mut xsk::Socket) -> xsk::Result<()> {
    let batch = socket.send_batch(64);
    socket.flush()?;
    drop(batch);
    Ok(())
}

fn main() {}
