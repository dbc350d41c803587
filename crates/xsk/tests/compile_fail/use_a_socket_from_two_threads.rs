fn misuse(socket: &mut xsk::Socket) {
    let one = || socket.flush();
    let other = || socket.flush();
    std::thread::scope(|scope| {
        scope.spawn(one);
        scope.spawn(other);
    });
}

fn main() {}
