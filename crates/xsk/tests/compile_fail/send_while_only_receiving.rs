fn misuse(socket: &mut xsk::Socket) {
    socket.receive_each(1, |packet| packet.send());
}

fn main() {}
