//! Holds a crate's files to its layers: a module imports from the layers below it, never from another
//! module of its own layer, and no two files import each other, not by way of others either.
//!
//! The crate's root lists the layers in ordinary comments, highest first, each with the modules
//! in it and, after two spaces, its purpose:
//!
//! ```text
//! // # Layers
//! //
//! //     socket, batch   moving packets
//! //     umem            memory shared with the kernel
//! ```
//!
//! An import is a `use`, or a path in the code, below `crate`, `self`, `super`, a child module or
//! an imported name. It counts for the file that defines the item: a `mod.rs` that re-exports its
//! children does not import them. Code under `#[cfg(test)]` may import anything, and so may the root.
//!
//! A method of a type may be defined in a higher layer than the type. A call of it by `self`, `Self` or the type's name
//! from a layer below goes upwards, too.

mod cases;
mod code;

use code::Code;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use testkit::{Result, Test};

/// A module by its path below the crate's root, which is empty.
type Module = Vec<String>;

/// The crates with layers, by their folders.
const CRATES: [&str; 8] = [
    "broker",
    "filter",
    "hostnet",
    "testkit",
    "weir",
    "xsk",
    "xsk-c",
    "xsk-libxdp",
];

/// The ends of faults that are known, by the crate.
const KNOWN: [(&str, &str); 1] = [
    // A rule is expanded when it has been read, as what follows refers to its parts: the parser goes on with the result.
    ("filter", "calls upwards: Parser::expand of expand"),
];

pub fn tests() -> Vec<Test> {
    let mut tests = cases::tests();
    for name in CRATES {
        let imports = move || imports_go_downwards_and_never_in_a_circle(name);
        tests.push(Test::new(format!("layers::{name}::imports"), imports).for_everyone());
    }
    let picture = || the_picture_shows_the_imports_of("weir");
    tests.push(Test::new("layers::weir::picture", picture).for_everyone());
    tests
}

fn imports_go_downwards_and_never_in_a_circle(name: &str) {
    let mut faults = check(&crate_files(name));
    for (_, known) in KNOWN.iter().filter(|(of, _)| *of == name) {
        let before = faults.len();
        faults.retain(|fault| !fault.ends_with(known));
        assert!(faults.len() < before, "no longer so: {known}");
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// ARCHITECTURE.md has the picture of a crate after the line `imports of CRATE`.
fn the_picture_shows_the_imports_of(name: &str) -> Result {
    let map = fs::read_to_string(folder("..").join("ARCHITECTURE.md"))?;
    let drawn = map.split_once(&format!("<!-- imports of {name} -->\n\n"));
    let picture = picture(&crate_files(name));
    assert!(
        drawn.is_some_and(|(_, drawn)| drawn.starts_with(&picture)),
        "ARCHITECTURE.md must show:\n\n{picture}"
    );
    Ok(())
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// The imports between the modules of the layers as a graph for Mermaid. An import that leads there
/// by way of others is left out.
fn picture(files: &BTreeMap<Module, String>) -> String {
    let layers = layers(files.get(&Vec::new()).map_or("", String::as_str));
    let mut arrows: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for (from, to) in Code::read(files).edges(files) {
        for to in to.keys() {
            let ends = (name_in(&layers, &from), name_in(&layers, to));
            if let (Some(from), Some(to)) = ends
                && from != to
            {
                arrows.entry(from).or_default().insert(to);
            }
        }
    }
    let reaches = |from: &&Module, to: &Module| {
        let mut found = vec![*from];
        let mut at = 0;
        while at < found.len() {
            let next = arrows.get(found[at]).into_iter().flatten();
            let new: Vec<_> = next.filter(|next| !found.contains(next)).copied().collect();
            found.extend(new);
            at += 1;
        }
        found.contains(&to)
    };
    let mut text = "```mermaid\ngraph TD\n".to_owned();
    for from in layers.iter().flatten() {
        let direct = arrows.get(from).into_iter().flatten();
        for to in direct {
            let others = arrows[from].iter().filter(|other| other != &to);
            if !others.clone().any(|other| reaches(other, to)) {
                text.extend(["    ", &show(from), " --> ", &show(to), "\n"]);
            }
        }
    }
    text + "```\n"
}

/// The files of a crate.
fn crate_files(name: &str) -> BTreeMap<Module, String> {
    let sources = folder(name).join("src");
    let root = ["lib.rs", "main.rs"]
        .into_iter()
        .find(|root| sources.join(root).exists())
        .expect("the crate has a root");
    let mut files = BTreeMap::new();
    read_files(&sources, &mut Vec::new(), root, &mut files);
    files
}

/// Reads the files below a folder; programs beside a library are crates of their own.
fn read_files(
    folder: &Path,
    module: &mut Module,
    root: &str,
    files: &mut BTreeMap<Module, String>,
) {
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the folder is readable").path();
        let name = |name: Option<&std::ffi::OsStr>| {
            let name = name.and_then(|name| name.to_str());
            name.expect("names are UTF-8").to_owned()
        };
        let (file, stem) = (name(path.file_name()), name(path.file_stem()));
        if path.is_dir() {
            if !(module.is_empty() && file == "bin") {
                module.push(file);
                read_files(&path, module, root, files);
                module.pop();
            }
            continue;
        }
        let is_root = module.is_empty() && ["lib.rs", "main.rs"].contains(&file.as_str());
        if path.extension().is_none_or(|end| end != "rs") || (is_root && file != root) {
            continue;
        }
        let mut module = module.clone();
        if !is_root && file != "mod.rs" {
            module.push(stem);
        }
        let text = fs::read_to_string(&path).expect("the file is readable");
        files.insert(module, text);
    }
}

/// Every upward import, every circle, and every gap in the list of layers.
fn check(files: &BTreeMap<Module, String>) -> Vec<String> {
    let layers = layers(files.get(&Vec::new()).map_or("", String::as_str));
    let code = Code::read(files);
    let mut faults = Vec::new();
    for name in layers.iter().flatten() {
        if !files.contains_key(name) {
            faults.push(format!(
                "the list of layers names {}: no such file",
                show(name)
            ));
        }
    }
    let edges = code.edges(files);
    for from in files.keys().filter(|file| !file.is_empty()) {
        let Some(layer) = layer_of(&layers, from) else {
            faults.push(format!("{} is in no layer", show(from)));
            continue;
        };
        for (to, item) in edges.get(from).into_iter().flatten() {
            let to_layer = layer_of(&layers, to);
            let way = if to.is_empty() || to_layer.is_some_and(|to| to < layer) {
                "upwards"
            } else if to_layer == Some(layer) && name_in(&layers, to) != name_in(&layers, from) {
                "from its own layer"
            } else {
                continue;
            };
            let (from, to) = (show(from), show(to));
            faults.push(format!("{from} imports {way}: {} of {to}", item.join("::")));
        }
    }
    for (from, to, method) in code.calls(files) {
        if layer_of(&layers, &to) < layer_of(&layers, &from) {
            let (from, to) = (show(&from), show(&to));
            faults.push(format!("{from} calls upwards: {method} of {to}"));
        }
    }
    faults.extend(circles(&edges));
    faults
}

/// The list of layers in the root's comments.
fn layers(root: &str) -> Vec<Vec<Module>> {
    let list = root.lines().skip_while(|line| *line != "// # Layers");
    list.take_while(|line| line.starts_with("//"))
        .filter_map(|line| line.strip_prefix("//     "))
        .map(|line| {
            let names = line.split("  ").next().unwrap_or(line);
            names.split(", ").map(|name| parts(name.trim())).collect()
        })
        .collect()
}

/// The layer of a module.
fn layer_of(layers: &[Vec<Module>], module: &[String]) -> Option<usize> {
    place(layers, module).map(|(_, layer)| layer)
}

/// The name in the list of layers that a module is at or below.
fn name_in<'l>(layers: &'l [Vec<Module>], module: &[String]) -> Option<&'l Module> {
    place(layers, module).map(|(name, _)| name)
}

/// The longest name that a module is at or below, and its layer.
fn place<'l>(layers: &'l [Vec<Module>], module: &[String]) -> Option<(&'l Module, usize)> {
    let names = layers.iter().enumerate();
    names
        .flat_map(|(layer, names)| names.iter().map(move |name| (name, layer)))
        .filter(|(name, _)| module.starts_with(name))
        .max_by_key(|(name, _)| name.len())
}

fn parts(path: &str) -> Module {
    path.split("::").map(str::to_owned).collect()
}

fn show(module: &[String]) -> String {
    if module.is_empty() {
        "the crate's root".to_owned()
    } else {
        module.join("::")
    }
}

/// The imports between files: for each file the files, and an item of each.
type Edges = BTreeMap<Module, BTreeMap<Module, Module>>;

/// The shortest circle through each file that is in one, each circle once.
fn circles(edges: &Edges) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for start in edges.keys() {
        let Some(circle) = circle_through(edges, start) else {
            continue;
        };
        if seen.insert(circle.iter().cloned().collect::<BTreeSet<_>>()) {
            let names: Vec<_> = circle
                .iter()
                .chain(circle.first())
                .map(|m| show(m))
                .collect();
            faults.push(format!("circle: {}", names.join(" -> ")));
        }
    }
    faults
}

fn circle_through(edges: &Edges, start: &Module) -> Option<Vec<Module>> {
    let mut paths = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        for next in edges.get(path.last()?).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                return Some(path);
            }
            if seen.insert(next.clone()) {
                let mut path = path.clone();
                path.push(next.clone());
                paths.push_back(path);
            }
        }
    }
    None
}
