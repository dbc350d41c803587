//! Packets against rule sets: pf's decisions and their causes.

mod anchors;
mod cases;
mod explain;
mod fragments;
mod net;
mod packets;
mod states;
mod translate;
