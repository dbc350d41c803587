//! The items, imports and calls of a crate.

use super::{Edges, Module, parts, show};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprMethodCall, ImplItem, Item, ItemImpl, ItemMod, ItemUse, Macro, Path, Type,
    UseTree, VisRestricted, Visibility,
};

/// The items and imports of a crate.
#[derive(Default)]
pub struct Code {
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
    /// Methods that a module defines, outside of traits.
    methods: Vec<Method>,
    /// Methods that a module calls.
    calls: Vec<Method>,
}

/// A method in a module: its type's path there, and its name.
type Method = (Module, Module, String);

impl Code {
    pub fn read(files: &BTreeMap<Module, String>) -> Self {
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
                own: Module::new(),
            };
            reader.visit_file(&file);
        }
        code
    }

    pub fn edges(&self, files: &BTreeMap<Module, String>) -> Edges {
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

    /// The calls of a method of a type that is defined in another file: the two files, and the method.
    pub fn calls(&self, files: &BTreeMap<Module, String>) -> BTreeSet<Method> {
        let mut defined: BTreeMap<_, BTreeSet<&[String]>> = BTreeMap::new();
        for (here, of, name) in &self.methods {
            let of = self.type_of(here, of);
            defined
                .entry((of, name))
                .or_default()
                .insert(file_of(files, here));
        }
        let mut calls = BTreeSet::new();
        for (here, of, name) in &self.calls {
            let (from, of) = (file_of(files, here), self.type_of(here, of));
            let shown = format!("{}::{name}", of.last().map_or("", String::as_str));
            let homes = defined.get(&(of, name)).into_iter().flatten();
            let is_test = self.tests.iter().any(|test| from.starts_with(test));
            for home in homes.filter(|home| **home != from && !is_test) {
                calls.insert((from.to_vec(), home.to_vec(), shown.clone()));
            }
        }
        calls
    }

    /// The path of a type from the crate's root.
    fn type_of(&self, here: &[String], path: &[String]) -> Module {
        let reader = |here: &[String]| absolute(self, here, path);
        let from_here = [here, path].concat();
        let path = reader(here).unwrap_or(from_here);
        let resolved = self.resolve(path.clone());
        resolved.map_or(path, |(module, rest)| [module, rest].concat())
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
    /// The type of the methods at hand.
    own: Module,
}

/// A path from the crate's root; none when it leads into another crate.
fn absolute(code: &Code, here: &[String], path: &[String]) -> Option<Module> {
    let mut base = here.to_vec();
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
            if let Some(target) = code.aliases.get(&alias) {
                base.clone_from(target);
                rest = &path[1..];
            } else if !code.defined.contains_key(&child) {
                return None;
            }
        }
    }
    base.extend_from_slice(rest);
    Some(base)
}

impl Reader<'_> {
    fn add_path(&mut self, path: &[String]) {
        if let Some(path) = absolute(self.code, &self.here, path) {
            self.code.paths.push((self.here.clone(), path, false));
        }
    }

    fn add_call(&mut self, of: Module, method: String) {
        self.code.calls.push((self.here.clone(), of, method));
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
        let Some(target) = absolute(self.code, &self.here, &full) else {
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

fn idents(path: &Path) -> Module {
    path.segments.iter().map(|s| s.ident.to_string()).collect()
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

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let own = match &*item.self_ty {
            Type::Path(of) => idents(&of.path),
            _ => Module::new(),
        };
        let before = std::mem::replace(&mut self.own, own);
        for item in item.items.iter().filter(|_| item.trait_.is_none()) {
            if let ImplItem::Fn(method) = item {
                let method = (
                    self.here.clone(),
                    self.own.clone(),
                    method.sig.ident.to_string(),
                );
                self.code.methods.push(method);
            }
        }
        visit::visit_item_impl(self, item);
        self.own = before;
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if matches!(&*call.receiver, Expr::Path(it) if it.path.is_ident("self")) {
            self.add_call(self.own.clone(), call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let parts = idents(path);
        if parts.len() > 1 && path.leading_colon.is_none() {
            self.add_path(&parts);
            let (name, of) = parts.split_last().expect("two at least");
            let of = if of == ["Self"] { &self.own } else { of };
            self.add_call(of.to_vec(), name.clone());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        // A macro's `$crate` leads to the root, for the crate that uses it.
        let tokens = item.tokens.to_string().replace("$crate", "");
        let tokens = tokens.replace("$ crate", "").replace(" :: ", "::");
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
