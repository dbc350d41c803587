fn misuse(message: &[u8], descriptors: Vec<std::os::fd::OwnedFd>) -> xsk::Result<xsk::Socket> {
    xsk::Socket::from_parts(xsk::Parts::from_message(message, descriptors)?)
}

fn main() {}
