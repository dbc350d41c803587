//! The paths that a curve compares. Each is a [`Datapath`] in a file of its own.

mod af_packet;
mod af_xdp;
mod bridge;
mod datapath;
mod ovs;
mod stack;
mod weir;
mod xdp;

use clap::ValueEnum;
use serde::Serialize;

pub use self::datapath::{Datapath, Installed, ReceiverKind, Site, Station, Stroke};

/// The path of packets from the device to their receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Linux bridge, to taps
    Bridge,
    /// Linux bridge accelerated by weir, to taps
    Weir,
    /// XDP program that redirects, to taps
    Xdp,
    /// Open vSwitch, to taps
    Ovs,
    /// Network stack, to UDP sockets
    Stack,
    /// AF_XDP socket in driver mode
    AfXdp,
    /// AF_PACKET socket with a ring (TPACKET version 3)
    AfPacket,
}

impl Path {
    /// The path's implementation.
    pub fn datapath(self) -> &'static dyn Datapath {
        match self {
            Self::Bridge => &bridge::Bridge,
            Self::Weir => &weir::Weir,
            Self::Xdp => &xdp::Xdp,
            Self::Ovs => &ovs::Ovs,
            Self::Stack => &stack::Stack,
            Self::AfXdp => &af_xdp::AfXdp,
            Self::AfPacket => &af_packet::AfPacket,
        }
    }

    /// Why the path cannot be measured with so many receivers, `guests` or processes.
    pub fn unsupported(self, receivers: u8, guests: bool) -> Option<&'static str> {
        let datapath = self.datapath();
        if guests && datapath.receiver() != ReceiverKind::Tap {
            return Some("a guest receives from a tap: leave out --guest to measure sockets");
        }
        datapath.one_receiver_only().filter(|_| receivers > 1)
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_possible_value()
            .map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_differ_in_charts() {
        let strokes = Path::value_variants()
            .iter()
            .map(|it| it.datapath().stroke());
        let strokes: Vec<_> = strokes.map(|it| (it.light, it.dark, it.dash)).collect();
        for (number, one) in strokes.iter().enumerate() {
            for other in &strokes[number + 1..] {
                assert!(one.0 != other.0 && one.1 != other.1, "{one:?} {other:?}");
            }
        }
    }

    /// The relative luminance of a colour `#rrggbb`, see WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let hex = u32::from_str_radix(&colour[1..], 16).expect("hexadecimal");
        let linear = |byte: u32| match f64::from(byte & 0xff) / 255.0 {
            low if low <= 0.04045 => low / 12.92,
            high => ((high + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * linear(hex >> 16) + 0.7152 * linear(hex >> 8) + 0.0722 * linear(hex)
    }

    #[test]
    fn labels_are_legible_in_both_schemes() {
        let contrast = |one: &str, other: &str| {
            let (one, other) = (luminance(one), luminance(other));
            (one.max(other) + 0.05) / (one.min(other) + 0.05)
        };
        for path in Path::value_variants() {
            let stroke = path.datapath().stroke();
            // The backgrounds of chart.css.
            for (colour, background) in [(stroke.light, "#ffffff"), (stroke.dark, "#15191d")] {
                let contrast = contrast(colour, background);
                assert!(contrast >= 4.5, "{path}: {colour} has {contrast:.1}");
            }
        }
    }

    #[test]
    fn guests_have_taps_and_a_queue_has_one_socket() {
        assert_eq!(Path::Bridge.unsupported(2, true), None);
        assert!(Path::Stack.unsupported(1, true).is_some());
        assert_eq!(Path::AfXdp.unsupported(1, false), None);
        assert!(Path::AfXdp.unsupported(2, false).is_some());
    }
}
