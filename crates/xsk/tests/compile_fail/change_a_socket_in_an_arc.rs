fn misuse(socket: std::sync::Arc<xsk::Socket>) -> xsk::Result<()> {
    socket.flush()
}

fn main() {}
