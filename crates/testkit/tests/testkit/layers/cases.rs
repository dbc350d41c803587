//! The check of layers itself, on small crates.

use super::{check, parts, picture};
use std::collections::BTreeMap;
use testkit::{Test, tests};

pub fn tests() -> Vec<Test> {
    let tests = tests![
        downward_imports_and_facades_are_clean,
        an_upward_import_is_named,
        an_import_from_the_same_layer_is_named,
        the_picture_leaves_out_detours,
        a_circle_is_named_once,
        a_file_without_a_layer_and_a_layer_without_a_file_are_named,
        a_call_of_a_method_of_a_higher_layer_is_named,
    ];
    tests.into_iter().map(Test::for_everyone).collect()
}

/// The faults of a crate of these files, the first of which is the root.
fn faults_of(files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(module, text)| {
        let module = if module.is_empty() {
            Vec::new()
        } else {
            parts(module)
        };
        (module, (*text).to_owned())
    });
    check(&files.collect())
}

const ROOT: &str = "\
// # Layers
//
//     top           uses all
//     middle, side  in between
//     ground        uses nothing
mod ground; mod middle; mod side; mod top;
pub use top::Top;
";

fn downward_imports_and_facades_are_clean() {
    let faults = faults_of(&[
        ("", ROOT),
        (
            "top",
            "use crate::middle::{self, Part}; pub struct Top(Part, middle::Whole);",
        ),
        (
            "middle",
            "mod part; pub use part::Part; use crate::ground::G; pub struct Whole(G);",
        ),
        (
            "middle::part",
            "use super::Whole; pub struct Part(Box<Whole>);",
        ),
        ("side", "#[cfg(test)] mod tests { use crate::top::Top; }"),
        ("ground", "pub struct G;"),
    ]);
    assert_eq!(faults, [""; 0]);
}

fn an_upward_import_is_named() {
    for import in [
        "use crate::top::Top;",
        "use crate::Top;",
        "fn f() { super::top::g(); }",
        "use super::top; fn f() -> top::Top {}",
        "fn f() { assert!(crate::top::g() == 1); }",
    ] {
        let faults = faults_of(&[
            ("", ROOT),
            ("top", "pub struct Top; pub fn g() {}"),
            ("middle", ""),
            ("side", ""),
            ("ground", import),
        ]);
        assert_eq!(faults.len(), 1, "{import}: {faults:?}");
        assert!(
            faults[0].starts_with("ground imports upwards: "),
            "{faults:?}"
        );
    }
}

fn an_import_from_the_same_layer_is_named() {
    let faults = faults_of(&[
        ("", ROOT),
        ("top", ""),
        ("middle", "use crate::side::S;"),
        ("side", "pub struct S;"),
        ("ground", ""),
    ]);
    assert_eq!(faults, ["middle imports from its own layer: S of side"]);
}

fn the_picture_leaves_out_detours() {
    let files = [
        ("", ROOT),
        ("top", "use crate::{ground::G, side::S};"),
        ("middle", ""),
        ("side", "use crate::ground::G; pub struct S;"),
        ("ground", "pub struct G;"),
    ];
    let files = files.map(|(module, text)| {
        let module = module.split_terminator("::").map(str::to_owned).collect();
        (module, text.to_owned())
    });
    let expected = "```mermaid\ngraph TD\n    top --> side\n    side --> ground\n```\n";
    assert_eq!(picture(&BTreeMap::from(files)), expected);
}

fn a_circle_is_named_once() {
    let faults = faults_of(&[
        ("", ROOT),
        ("top", ""),
        (
            "middle",
            "mod part; pub use part::Part; use crate::side::S;",
        ),
        ("middle::part", "pub struct Part;"),
        ("side", "mod inner; pub use inner::S;"),
        ("side::inner", "use crate::middle::M; pub struct S;"),
        ("ground", ""),
    ]);
    let circle = "circle: middle -> side::inner -> middle";
    assert!(faults.contains(&circle.to_owned()), "{faults:?}");
    assert_eq!(faults.len(), 3, "{faults:?}");
}

fn a_file_without_a_layer_and_a_layer_without_a_file_are_named() {
    let faults = faults_of(&[
        ("", ROOT),
        ("top", ""),
        ("middle", ""),
        ("ground", ""),
        ("other", ""),
    ]);
    let expected = [
        "the list of layers names side: no such file",
        "other is in no layer",
    ];
    assert_eq!(faults, expected);
}

fn a_call_of_a_method_of_a_higher_layer_is_named() {
    for call in ["self.fly()", "Self::fly(self)", "G::fly(self)"] {
        let ground = format!("pub struct G; impl G {{ fn f(&self) {{ {call}; self.stay() }} }}");
        let faults = faults_of(&[
            ("", ROOT),
            (
                "top",
                "use crate::ground::G; impl G { pub fn fly(&self) { self.f() } }",
            ),
            // Another type of the name, and another method.
            ("middle", "struct G; impl G { fn stay(&self) {} }"),
            ("side", ""),
            ("ground", &ground),
        ]);
        assert_eq!(faults, ["ground calls upwards: G::fly of top"], "{call}");
    }
}
