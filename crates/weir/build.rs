//! Builds what `weir` carries inside it.

fn main() {}
