fn misuse(socket: &mut xsk::Socket) {
    let mut batch = socket.send_batch(64);
    let packet = batch.iter_mut().next();
    drop(batch);
    drop(packet);
}

fn main() {}
