fn misuse(socket: &mut xsk::Socket) {
    let mut held = None;
    socket.receive_each(1, |packet| {
        held = Some(&packet[..]);
        packet.recycle()
    });
}

fn main() {}
