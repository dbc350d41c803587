//! Holds a crate's files to its layers: a module imports from the layers below it, never from another
//! module of its own layer, and no two files import each other, not by way of others either.
//!
//! The crate's root lists the layers in ordinary comments, highest first, each with the modules
//! in it and, behind two spaces, its purpose:
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
//! Another crate uses this file as a test of its own: `[[test]] path = "…/layers.rs"`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path as FsPath;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, VisRestricted, Visibility};

/// A module by its path below the crate's root, which is empty.
type Module = Vec<String>;

#[test]
fn imports_go_downwards_and_never_in_a_circle() {
    let files = crate_files();
    let faults = check(&files);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// ARCHITECTURE.md has the picture of a crate behind this line; a package of the crate has no such file.
const PICTURE: &str = concat!("<!-- imports of ", env!("CARGO_PKG_NAME"), " -->\n\n");

#[test]
fn the_picture_shows_these_imports() {
    let files = crate_files();
    let picture = picture(&files);
    let map = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let map = fs::read_to_string(map).unwrap_or_default();
    if let Some((_, drawn)) = map.split_once(PICTURE) {
        assert!(
            drawn.starts_with(&picture),
            "ARCHITECTURE.md must show:\n\n{picture}"
        );
    }
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

/// The files of this crate.
fn crate_files() -> BTreeMap<Module, String> {
    let sources = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("src");
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
    folder: &FsPath,
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

/// The items and imports of a crate.
#[derive(Default)]
struct Code {
    /// Every module, also those inside a file, with the names that it defines.
    defined: BTreeMap<Module, BTreeSet<String>>,
    /// Names that a module imports or re-exports, and where they lead.
    aliases: BTreeMap<(Module, String), Module>,
    /// Modules that a module imports all names of.
    globs: BTreeMap<Module, Vec<Module>>,
    /// Paths in a module's code, and whether they are re-exports.
    paths: Vec<(Module, Module, bool)>,
    /// Modules that are built for tests only.
    tests: BTreeSet<Module>,
}

impl Code {
    fn read(files: &BTreeMap<Module, String>) -> Self {
        let mut code = Self::default();
        // Modules first, so that a path can be told from one of another crate.
        for module in files.keys() {
            code.defined.entry(module.clone()).or_default();
        }
        for (module, text) in files {
            let file = syn::parse_file(text).unwrap_or_else(|e| panic!("{}: {e}", show(module)));
            let mut reader = Reader {
                code: &mut code,
                here: module.clone(),
            };
            reader.visit_file(&file);
        }
        code
    }

    fn edges(&self, files: &BTreeMap<Module, String>) -> Edges {
        let mut edges = Edges::new();
        for (here, path, is_reexport) in &self.paths {
            let from = file_of(files, here);
            let in_test = |test: &Module| from.starts_with(test);
            let Some((module, item)) = self.resolve(path.clone()) else {
                continue;
            };
            let to = file_of(files, &module);
            let facade = *is_reexport && to.starts_with(from);
            if from == to || facade || from.is_empty() || self.tests.iter().any(in_test) {
                continue;
            }
            let items = edges.entry(from.to_vec()).or_default();
            items.entry(to.to_vec()).or_insert(item);
        }
        edges
    }

    /// The module that defines the item of a path, and the rest of the path; none for a path to a
    /// module itself, which imports nothing until a name in it is used.
    fn resolve(&self, mut path: Module) -> Option<(Module, Module)> {
        // An alias can lead to another, at worst back to itself.
        for _ in 0..32 {
            let mut at = 0;
            while at < path.len() && self.defined.contains_key(&path[..=at]) {
                at += 1;
            }
            let (module, rest) = path.split_at(at);
            let name = rest.first()?;
            if name == "*" {
                return Some((module.to_vec(), rest.to_vec()));
            }
            let target = self.alias(module, name);
            match target {
                Some(target) if !self.defined[module].contains(name) => {
                    path = target.iter().chain(&rest[1..]).cloned().collect();
                }
                _ => return Some((module.to_vec(), rest.to_vec())),
            }
        }
        None
    }

    fn alias(&self, module: &[String], name: &str) -> Option<Module> {
        if let Some(target) = self.aliases.get(&(module.to_vec(), name.to_owned())) {
            return Some(target.clone());
        }
        self.globs.get(module)?.iter().find_map(|glob| {
            let has = |names: &BTreeSet<String>| names.contains(name);
            let alias = || self.aliases.get(&(glob.clone(), name.to_owned())).cloned();
            let own = self.defined.get(glob).is_some_and(has);
            own.then(|| [glob.as_slice(), &[name.to_owned()]].concat())
                .or_else(alias)
        })
    }
}

/// The file that a module, perhaps one inside a file, is in.
fn file_of<'m>(files: &BTreeMap<Module, String>, module: &'m [String]) -> &'m [String] {
    let mut file = module;
    while !files.contains_key(file) {
        file = file.split_last().map_or(&[], |(_, parent)| parent);
    }
    file
}

/// Reads one file into a [`Code`].
struct Reader<'c> {
    code: &'c mut Code,
    here: Module,
}

impl Reader<'_> {
    /// A path from the crate's root; none when it leads into another crate.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut base = self.here.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [base.as_slice(), &[first.to_owned()]].concat();
                let alias = (base.clone(), first.to_owned());
                if let Some(target) = self.code.aliases.get(&alias) {
                    base.clone_from(target);
                    rest = &path[1..];
                } else if !self.code.defined.contains_key(&child) {
                    return None;
                }
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    fn add_path(&mut self, path: &[String]) {
        if let Some(path) = self.absolute(path) {
            self.code.paths.push((self.here.clone(), path, false));
        }
    }

    fn add_use(&mut self, tree: &UseTree, path: &mut Module, is_reexport: bool) {
        let (last, name) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.add_use(&tree.tree, path, is_reexport);
                path.pop();
                return;
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, path, is_reexport);
                }
                return;
            }
            UseTree::Name(tree) => (tree.ident.to_string(), tree.ident.to_string()),
            UseTree::Rename(tree) => (tree.ident.to_string(), tree.rename.to_string()),
            UseTree::Glob(_) => ("*".to_owned(), String::new()),
        };
        let is_self = last == "self" && !path.is_empty();
        let mut full = path.clone();
        if !is_self {
            full.push(last.clone());
        }
        let Some(target) = self.absolute(&full) else {
            return;
        };
        let here = self.here.clone();
        if last == "*" {
            let glob = target[..target.len() - 1].to_vec();
            self.code.globs.entry(here.clone()).or_default().push(glob);
        } else {
            let name = if is_self && name == "self" {
                path.last().cloned().unwrap_or_default()
            } else {
                name
            };
            self.code
                .aliases
                .insert((here.clone(), name), target.clone());
        }
        self.code.paths.push((here, target, is_reexport));
    }
}

/// Whether an item is built for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            meta => return meta.path().is_ident("test"),
        };
        condition == "test" || condition.starts_with("all (test")
    })
}

fn item_name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.visit_items(&file.items);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.here.push(item.ident.to_string());
        if is_test(&item.attrs) {
            self.code.tests.insert(self.here.clone());
        } else if let Some((_, items)) = &item.content {
            self.visit_items(items);
        }
        self.here.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            let is_reexport = !matches!(item.vis, Visibility::Inherited);
            self.add_use(&item.tree, &mut Vec::new(), is_reexport);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let parts: Module = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if parts.len() > 1 && path.leading_colon.is_none() {
            self.add_path(&parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        let tokens = item.tokens.to_string().replace(" :: ", "::");
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for path in tokens.split(|c| !is_path(c)) {
            if path.contains("::") && !path.starts_with(':') {
                self.add_path(&parts(path.trim_end_matches(':')));
            }
        }
        visit::visit_macro(self, item);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}

impl Reader<'_> {
    /// Imports first, which the paths in the code are resolved by.
    fn visit_items(&mut self, items: &[Item]) {
        let here = self.here.clone();
        let defined = self.code.defined.entry(here).or_default();
        defined.extend(items.iter().filter_map(item_name));
        for item in items {
            if let Item::Mod(module) = item {
                let child = [self.here.as_slice(), &[module.ident.to_string()]].concat();
                self.code.defined.entry(child).or_default();
            }
        }
        let (imports, others): (Vec<_>, Vec<_>) =
            items.iter().partition(|item| matches!(item, Item::Use(_)));
        for item in imports.into_iter().chain(others) {
            self.visit_item(item);
        }
    }
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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
