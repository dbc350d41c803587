fn misuse(frame: &xsk::Frame) -> xsk::Frame {
    *frame
}

fn main() {}
