fn misuse(mut socket: xsk::Socket) -> usize {
    let batch = socket.recv(64);
    drop(socket);
    batch.len()
}

fn main() {}
