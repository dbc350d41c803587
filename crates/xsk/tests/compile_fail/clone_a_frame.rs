fn misuse(frame: &xsk::Frame) -> xsk::Frame {
    frame.clone()
}

fn main() {}
