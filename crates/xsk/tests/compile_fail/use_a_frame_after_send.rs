fn misuse(socket: &mut xsk::Socket, mut frame: xsk::Frame) {
    let _ = socket.send(frame);
    frame[0] = 1;
}

fn main() {}
