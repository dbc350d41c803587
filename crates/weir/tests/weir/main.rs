//! Tests of `weir` on real packets.

fn main() {}
