fn misuse(socket: &mut xsk::Socket) {
    let mut batch = socket.recv(64);
    let packet = batch.next_packet();
    drop(batch);
    drop(packet);
}

fn main() {}
