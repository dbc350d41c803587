fn misuse(socket: std::sync::Arc<xsk::Socket<'_>>) -> xsk::Result<()> {
    socket.flush()
}

fn main() {}
