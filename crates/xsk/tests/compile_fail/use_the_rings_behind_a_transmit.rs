fn misuse(to: &mut impl xsk::Transmit) {
    let _ = to.outlet(0);
}

fn main() {}
