fn misuse(socket: &mut xsk::Socket, id: xsk::SiblingId) -> xsk::Result<()> {
    let mut sibling = socket.sibling(id).unwrap();
    socket.flush()?;
    sibling.flush()
}

fn main() {}
