fn misuse(packet: xsk::Packet<'_, '_>) {
    // Through a variable, since the compiler would quote the source of a method.
    let send = xsk::Packet::send;
    let _ = send(packet);
    drop(packet);
}

fn main() {}
