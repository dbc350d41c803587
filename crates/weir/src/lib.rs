//! The program behind the `weir` command.
