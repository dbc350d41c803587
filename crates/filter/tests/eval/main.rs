//! Packets against rule sets: pf's decisions and their causes.

mod anchors;
mod cases;
#[cfg(feature = "testing")]
mod defects;
mod explain;
mod fragments;
mod packets;
mod states;
mod support;
mod translate;
