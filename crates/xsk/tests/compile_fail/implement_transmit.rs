struct Elsewhere;

impl xsk::Transmit for Elsewhere {}

fn main() {}
