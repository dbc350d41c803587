fn misuse(socket: &mut xsk::Socket) {
    socket.receive_each(1, |packet| {
        let (_frame, done) = packet.keep();
        println!("{} bytes", packet.len());
        done
    });
}

fn main() {}
