fn misuse<'u>(frame: &xsk::Frame<'u>) -> xsk::Frame<'u> {
    frame.clone()
}

fn main() {}
