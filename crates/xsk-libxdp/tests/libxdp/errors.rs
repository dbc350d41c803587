//! Errors, as libxdp has them, and what is left after them.

use crate::Result;
use crate::build::{Built, Way};
use crate::lab::{Lab, run};
use std::collections::BTreeMap;
use std::process::Command;
use testkit::{Test, tests};
use xsk::{AttachMode, Filter, Program, Rule};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        bad_calls_have_libxdps_errors,
        calls_that_libxdp_does_not_survive_have_errors,
        another_program_is_in_the_way,
    ]
}

/// Runs the table of calls in a lab of its own.
fn table(built: &Built, way: Way) -> Result<String> {
    let lab = Lab::new(8)?;
    let rows = in_lab(&lab, built.command(way, "errors").args(["wan0", "down0"]))?;
    lab.expect_no_program()?;
    Ok(rows)
}

fn in_lab(lab: &Lab, command: &mut Command) -> Result<String> {
    lab.inside(|| run(command))
}

fn bad_calls_have_libxdps_errors() -> Result {
    let built = Built::with("errors")?;
    let [debians, linked, preloaded] = Way::ALL.map(|way| table(&built, way));
    let debians = debians?;
    assert!(debians.lines().count() > 60, "{debians}");
    for error in ["EFAULT", "EINVAL", "ENODEV", "EBUSY", "EOPNOTSUPP", "EBADF"] {
        assert!(debians.contains(error), "{error} in {debians}");
    }
    for ours in [linked?, preloaded?] {
        let rows = debians.lines().zip(ours.lines());
        let differ: Vec<_> = rows.filter(|(theirs, ours)| theirs != ours).collect();
        assert!(differ.is_empty(), "libxdp's and ours: {differ:#?}");
        assert_eq!(debians, ours);
    }
    Ok(())
}

fn calls_that_libxdp_does_not_survive_have_errors() -> Result {
    let built = Built::with("errors")?;
    let lab = Lab::new(1)?;
    let mut command = built.command(Way::Linked, "errors");
    let rows = in_lab(&lab, command.args(["wan0", "down0", "own"]))?;
    let expected = "a UMEM: 0\n\
        no device: EFAULT\n\
        the map of no socket: EINVAL\n\
        queue 99: EINVAL\n\
        another size than before: EINVAL\n\
        a queue: 0\n\
        the same queue again: 0\n\
        deleting a UMEM that one still uses: EBUSY\n\
        deleting it: 0\n";
    assert_eq!(rows, expected);
    lab.expect_no_program()
}

/// One that is not ours to share, since it has a filter. It stays, and nothing is added to it.
fn another_program_is_in_the_way() -> Result {
    let built = Built::with("errors")?;
    for way in Way::ALL {
        let lab = Lab::new(1)?;
        let program = lab.inside(|| {
            let program = Program::attach_to("wan0", AttachMode::Driver)?;
            let filter = BTreeMap::from([(0, Filter::any([Rule::ether_type(0x0806)]))]);
            program.set_filters(&filter)?;
            Ok(program)
        })?;
        let mut command = built.command(way, "errors");
        let rows = in_lab(&lab, command.args(["wan0", "down0", "one"]))?;
        assert_eq!(rows, "a UMEM: 0\na socket: EBUSY\n", "{way:?}");
        assert_eq!(lab.programs()?, ["xsk_redirect"]);
        drop(program);
        lab.expect_no_program()?;
    }
    Ok(())
}
