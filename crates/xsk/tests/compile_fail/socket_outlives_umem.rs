fn misuse() -> xsk::Result<xsk::Socket<'static>> {
    let umem = xsk::Umem::builder().build()?;
    xsk::Socket::builder(&umem, "eth0", 0).open()
}

fn main() {}
