fn misuse(packet: xsk::TxPacket<'_>) {
    let send = xsk::TxPacket::send;
    send(packet);
    drop(packet);
}

fn main() {}
