fn misuse<'u>(socket: &mut xsk::Socket<'u>, frame: xsk::Frame<'u>) {
    let _ = socket.send(frame);
    let _ = socket.send(frame);
}

fn main() {}
