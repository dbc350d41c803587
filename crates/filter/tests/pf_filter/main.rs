//! The library from outside, in one program.

mod analysis;
mod corpus;
mod eval;
mod freebsd;
mod lint;
mod parse;
mod support;
