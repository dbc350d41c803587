//! A flame graph as a self-contained SVG: no font, no network; a script to zoom.
//!
//! It marks the packet path and BPF programs by colour, with a legend, and has a dark scheme; the
//! library for Rust, inferno, has neither legend nor dark scheme, colours by function name alone, and
//! embeds a script under the CDDL in each graph.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::path::is_packet_path;
use super::profile::{KERNEL, Profile};
use crate::report::page::escape;

const SCRIPT: &str = include_str!("svg.js");
const STYLE: &str = include_str!("svg.css");

/// All lengths are in pixels.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const FULL: f64 = WIDTH - 2.0 * MARGIN;
const ROW: f64 = 17.0;
const LINE: f64 = 18.0;
/// Of a letter of 12 px in the usual monospaced fonts.
const LETTER: f64 = 7.25;
/// Frames narrower than this are not drawn: they are invisible, and there are thousands.
const NARROWEST: f64 = 0.25;

/// Text above the graph.
#[derive(Debug)]
pub struct Labels {
    /// The title.
    pub title: String,
    /// Smaller lines below the title.
    pub about: Vec<String>,
}

/// The flame graph of a profile.
pub fn render(profile: &Profile, labels: &Labels) -> String {
    let root = Node::of(profile);
    let rows = root.height() as f64;
    let top = MARGIN + 26.0 + LINE * (labels.about.len() + 1) as f64 + MARGIN;
    let height = top + rows * ROW + MARGIN;
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" width=\"{WIDTH}\" \
         height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" data-left=\"{MARGIN}\" \
         data-full=\"{FULL}\" data-letter=\"{LETTER}\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n",
        xml(&labels.title)
    );
    head(&mut svg, labels);
    let mut drawing = Drawing {
        svg,
        bottom: top + (rows - 1.0) * ROW,
        all: root.samples,
    };
    let place = Place {
        depth: 0,
        x: MARGIN,
        in_path: false,
    };
    drawing.frame("all", &root, place);
    drawing.svg + "<script><![CDATA[\n" + SCRIPT + "]]></script>\n</svg>\n"
}

fn head(svg: &mut String, labels: &Labels) {
    let mut y = MARGIN + 18.0;
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"{MARGIN}\" y=\"{y}\">{}</text>",
        xml(&labels.title)
    );
    y += 4.0;
    for line in &labels.about {
        y += LINE;
        let _ = writeln!(
            svg,
            "<text class=\"about\" x=\"{MARGIN}\" y=\"{y}\">{}</text>",
            xml(line)
        );
    }
    y += LINE;
    let mut x = MARGIN;
    for kind in Kind::ALL {
        let name = kind.name();
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\
             <text class=\"about\" x=\"{}\" y=\"{y}\">{name}</text>",
            y - 11.0,
            kind.color(""),
            x + 17.0
        );
        x += 45.0 + 6.5 * name.len() as f64;
    }
}

/// A frame and its callees.
#[derive(Debug, Default)]
struct Node<'a> {
    samples: u64,
    calls: BTreeMap<&'a str, Node<'a>>,
}

impl<'a> Node<'a> {
    fn of(profile: &'a Profile) -> Self {
        let mut root = Self::default();
        for (stack, &samples) in &profile.stacks {
            root.samples += samples;
            let mut node = &mut root;
            for frame in stack.split(';') {
                node = node.calls.entry(frame).or_default();
                node.samples += samples;
            }
        }
        root
    }

    /// Rows, its own included.
    fn height(&self) -> usize {
        1 + self.calls.values().map(Self::height).max().unwrap_or(0)
    }
}

/// The kind of a frame, shown by its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thread,
    User,
    Kernel,
    Path,
    Bpf,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Thread,
        Self::User,
        Self::Kernel,
        Self::Path,
        Self::Bpf,
    ];

    fn of(frame: &str, place: Place) -> Self {
        match frame {
            _ if place.depth <= 1 => Self::Thread,
            frame if frame.starts_with('[') && frame != KERNEL => Self::User,
            frame if frame.starts_with("bpf_prog_") && is_tagged(frame) => Self::Bpf,
            _ if place.in_path => Self::Path,
            _ => Self::Kernel,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::User => "user code, by file",
            Self::Kernel => "kernel",
            Self::Path => "packet path",
            Self::Bpf => "BPF program",
        }
    }

    /// The lightness depends on the name: neighbours differ, a function looks the same everywhere.
    fn color(self, frame: &str) -> String {
        let (hue, saturation) = match self {
            Self::Thread => (210, 12),
            Self::User => (205, 70),
            Self::Kernel => (48, 75),
            Self::Path => (22, 90),
            Self::Bpf => (145, 50),
        };
        let hash = frame.bytes().fold(0_u32, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(byte.into())
        });
        let lightness = 66 + hash % 13;
        format!("hsl({hue},{saturation}%,{lightness}%)")
    }
}

/// `bpf_prog_TAG` with a tag of 16 hexadecimal digits, and not a function of the kernel.
fn is_tagged(frame: &str) -> bool {
    frame
        .trim_start_matches("bpf_prog_")
        .bytes()
        .take_while(u8::is_ascii_hexdigit)
        .count()
        == 16
}

/// The place of a frame.
#[derive(Debug, Clone, Copy)]
struct Place {
    depth: usize,
    x: f64,
    /// Whether a caller is an entry of the packet path.
    in_path: bool,
}

struct Drawing {
    svg: String,
    bottom: f64,
    all: u64,
}

impl Drawing {
    fn frame(&mut self, name: &str, node: &Node<'_>, mut place: Place) {
        let width = self.width(node.samples);
        if width < NARROWEST && place.depth > 0 {
            return;
        }
        place.in_path |= place.depth > 1 && is_packet_path(name);
        self.draw(name, node.samples, width, place);
        let mut x = place.x;
        for (name, called) in &node.calls {
            let depth = place.depth + 1;
            self.frame(name, called, Place { depth, x, ..place });
            x += self.width(called.samples);
        }
    }

    fn width(&self, samples: u64) -> f64 {
        FULL * self.share(samples)
    }

    fn share(&self, samples: u64) -> f64 {
        if self.all == 0 {
            return 1.0; // only the root is drawn
        }
        samples as f64 / self.all as f64
    }

    fn draw(&mut self, name: &str, samples: u64, width: f64, place: Place) {
        let y = self.bottom - place.depth as f64 * ROW;
        let percent = self.share(samples) * 100.0;
        let _ = writeln!(
            self.svg,
            "<g class=\"frame\"><title>{} ({samples} samples, {percent:.2}%)</title>\
             <rect x=\"{:.3}\" y=\"{y}\" width=\"{width:.3}\" height=\"{}\" rx=\"1\" \
             fill=\"{}\"/><text x=\"{:.3}\" y=\"{}\">{}</text></g>",
            xml(name),
            place.x,
            ROW - 1.0,
            Kind::of(name, place).color(name),
            place.x + 3.0,
            y + 12.0,
            xml(&fit(name, width)),
        );
    }
}

/// The part of a name that fits into a frame; `svg.js` has the same rule.
fn fit(name: &str, width: f64) -> String {
    let letters = ((width - 6.0) / LETTER) as usize;
    match letters {
        0..3 => String::new(),
        _ if name.chars().count() <= letters => name.into(),
        _ => name.chars().take(letters - 2).chain("..".chars()).collect(),
    }
}

/// Text without characters that XML does not allow.
fn xml(text: &str) -> String {
    let allowed = |c: char| match c {
        '\u{FFFE}' | '\u{FFFF}' => '?',
        c if c.is_control() => '?',
        c => c,
    };
    escape(&text.chars().map(allowed).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::super::profile::tests::profile;
    use super::*;

    fn labels() -> Labels {
        Labels {
            title: "a < b & \"c\"\u{1}".into(),
            about: vec!["]]>".into()],
        }
    }

    /// Attributes of the frame with this name.
    fn rect(svg: &str, name: &str) -> (f64, f64) {
        let frame = svg
            .lines()
            .find(|line| line.contains(&format!("<title>{name} (")))
            .unwrap_or_else(|| panic!("no {name} in {svg}"));
        let number = |key: &str| -> f64 {
            let (_, rest) = frame.split_once(&format!(" {key}=\"")).expect(key);
            rest.split('"').next().expect(key).parse().expect(key)
        };
        (number("x"), number("width"))
    }

    #[test]
    fn widths_are_shares_of_the_samples() {
        let svg = render(
            &profile(&[("a;f;g", 30), ("a;f", 10), ("b", 60)]),
            &labels(),
        );
        for (name, x, width) in [
            ("all", 0.0, 1.0),
            ("a", 0.0, 0.4),
            ("f", 0.0, 0.4),
            ("g", 0.0, 0.3),
            ("b", 0.4, 0.6),
        ] {
            let rect = rect(&svg, name);
            assert!(
                (rect.0 - MARGIN - x * FULL).abs() < 0.01,
                "{name}: {rect:?}"
            );
            assert!((rect.1 - width * FULL).abs() < 0.01, "{name}: {rect:?}");
        }
    }

    #[test]
    fn names_cannot_break_the_markup() {
        let svg = render(&profile(&[("<script>\u{FFFF};&", 1)]), &labels());
        for text in ["a &lt; b &amp; &quot;c&quot;?", "&lt;script&gt;?", "]]&gt;"] {
            assert!(svg.contains(text), "no {text} in {svg}");
        }
        assert_eq!(svg.matches("<script>").count(), 1, "{svg}");
        assert_eq!(svg.matches("]]>").count(), 1, "{svg}");
    }

    #[test]
    fn no_samples_are_a_graph_too() {
        let svg = render(&profile(&[]), &labels());
        assert!((rect(&svg, "all").1 - FULL).abs() < 0.01, "{svg}");
    }

    #[test]
    fn labels_are_as_long_as_their_frames() {
        assert_eq!(fit("net_rx_action", 1000.0), "net_rx_action");
        assert_eq!(fit("net_rx_action", 6.0 + 8.5 * LETTER), "net_rx..");
        assert_eq!(fit("net_rx_action", 20.0), "");
        assert_eq!(fit("net_rx_action", 0.0), "");
    }

    #[test]
    fn frames_are_colored_by_what_they_are() {
        let place = |depth, in_path| Place {
            depth,
            x: 0.0,
            in_path,
        };
        for (frame, place, kind) in [
            ("napi/eth0-1", place(1, false), Kind::Thread),
            ("[libc.so.6]", place(2, false), Kind::User),
            ("[kernel]", place(2, false), Kind::Kernel),
            ("do_syscall_64", place(3, false), Kind::Kernel),
            ("veth_poll", place(9, true), Kind::Path),
            ("bpf_prog_6deef7357e7b4530_load", place(9, true), Kind::Bpf),
            ("bpf_prog_test_run_xdp", place(9, true), Kind::Path),
        ] {
            assert_eq!(Kind::of(frame, place), kind, "{frame}");
        }
    }
}
