fn misuse(socket: &mut xsk::Socket, frame: xsk::Frame) {
    let _ = socket.send(frame);
    let _ = socket.send(frame);
}

fn main() {}
