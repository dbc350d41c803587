//! Packets against rule sets: what pf decides, and why.

mod anchors;
mod cases;
#[cfg(feature = "testing")]
mod defects;
mod explain;
mod fragments;
mod packets;
mod speed;
mod states;
mod support;
mod translate;
