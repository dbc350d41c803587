fn misuse() -> xsk::Result<usize> {
    let frame = {
        let umem = xsk::Umem::builder().build()?;
        umem.alloc()
    };
    Ok(frame.map_or(0, |frame| frame.len()))
}

fn main() {}
