//! Programs written against `<xdp/xsk.h>` alone, on weir's library by link and by `LD_PRELOAD`, and on
//! Debian's libxdp beside it: real sockets, in network namespaces.

mod build;
mod errors;
mod forward;
mod instructions;
mod jumbo;
mod lab;

use std::process::ExitCode;
use testkit::{Need, Result, Suite};
use xsk::Feature;

const NEEDS: &[Need] = &[
    Need::SOCKETS,
    Need::Probe(|| missing(Feature::Sockets)),
    Need::Probe(|| missing(Feature::XdpLink)),
];

fn missing(feature: Feature) -> Option<String> {
    feature.probe().err().map(|error| error.to_string())
}

fn main() -> ExitCode {
    let tests = [
        build::tests(),
        errors::tests(),
        forward::tests(),
        instructions::tests(),
        jumbo::tests(),
    ];
    let suite = Suite::new().needing(NEEDS).within(lab::TEST);
    suite.run(tests.into_iter().flatten())
}
