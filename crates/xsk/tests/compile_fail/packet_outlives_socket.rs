fn misuse(mut socket: xsk::Socket) {
    let mut batch = socket.recv(64);
    let packet = batch.next_packet();
    drop(socket);
    drop(packet);
}

fn main() {}
