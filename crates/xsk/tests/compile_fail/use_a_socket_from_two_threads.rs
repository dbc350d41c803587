fn misuse(socket: &mut xsk::Socket<'_>) {
    std::thread::scope(|scope| {
        scope.spawn(|| socket.flush());
        scope.spawn(|| socket.flush());
    });
}

fn main() {}
