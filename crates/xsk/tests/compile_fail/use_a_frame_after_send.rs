fn misuse<'u>(socket: &mut xsk::Socket<'u>, mut frame: xsk::Frame<'u>) {
    let _ = socket.send(frame);
    frame[0] = 1;
}

fn main() {}
