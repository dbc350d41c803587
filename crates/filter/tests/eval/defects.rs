//! Each broken variant of the interpreter is noticed by a case.

use pf_filter::eval::{Defect, Engine};
use pf_filter::source::Memory;

use super::cases::{CASES, differences};
use super::support::{HOST, Net, load};

#[test]
fn each_defect_is_noticed() {
    for defect in Defect::ALL {
        let noticed = CASES.iter().filter(|case| {
            let (ruleset, host) = load(case.conf, HOST, Memory::default());
            let engine = Engine::with_defect(ruleset, host, defect);
            !differences(
                case,
                &mut Net {
                    engine,
                    host,
                    ruleset,
                },
            )
            .is_empty()
        });
        let names: Vec<_> = noticed.map(|case| case.name).collect();
        assert!(!names.is_empty(), "no case notices {defect:?}");
    }
}
