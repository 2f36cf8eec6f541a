//! Reads the imports between the modules of a crate from its sources, and checks them.
//!
//! An import is every path that starts with `crate`, `self`, `super` or the name of a child module, in a `use`
//! declaration, in code or in a macro call. Code below `#[cfg(test)]` is ignored. A path is attributed to the longest
//! prefix that is a module, so `crate::plan::types::Uid` is an import of `plan::types`. The root of the crate
//! (`lib.rs`) is called `crate`; `main.rs` is not read, because it is a crate of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The name of the module in `lib.rs`.
pub const ROOT: &str = "crate";

/// The modules of one crate and the modules that each of them imports.
#[derive(Debug)]
pub struct Modules {
    imports: BTreeMap<String, BTreeSet<String>>,
}

impl Modules {
    /// Reads every source file below `src`.
    ///
    /// # Panics
    /// If a file cannot be read or is not Rust: the test that calls it cannot continue.
    #[must_use]
    pub fn read(src: &Path) -> Self {
        let mut sources = BTreeMap::new();
        let mut folders = vec![src.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("list a source folder") {
                let path = entry.expect("list a source folder").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let relative = path.strip_prefix(src).expect("below the source folder");
                    let name = module_name(relative);
                    if name != "main" {
                        sources.insert(name, std::fs::read_to_string(&path).expect("read a source file"));
                    }
                }
            }
        }
        Self::from_sources(&sources)
    }

    /// Takes the sources by module name: `("plan::steps", "use crate::resource::Kind; …")`.
    ///
    /// # Panics
    /// If a source is not Rust.
    #[must_use]
    pub fn from_sources(sources: &BTreeMap<String, String>) -> Self {
        let mut streams: BTreeMap<&str, TokenStream> = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for (name, source) in sources {
            let stream: TokenStream =
                source.parse().unwrap_or_else(|error| panic!("{name} is not Rust: {error}"));
            let stream = without_tests(stream, &segments(name), &mut tests);
            streams.insert(name, stream);
        }
        let is_test = |name: &str| {
            tests.iter().any(|test: &String| name == test || name.starts_with(&format!("{test}::")))
        };
        streams.retain(|name, _| !is_test(name));
        let names: BTreeSet<Vec<String>> = streams.keys().map(|name| segments(name)).collect();
        let imports = streams.iter().map(|(name, stream)| {
            let file = segments(name);
            let mut found = BTreeSet::new();
            let mut reader = Reader { names: &names, found: &mut found };
            reader.read(stream.clone(), &file);
            found.remove(*name);
            ((*name).to_owned(), found)
        });
        Self { imports: imports.collect() }
    }

    /// Lists the imports from a lower layer into a higher one, and the modules that are in no layer.
    ///
    /// Layers are ordered from top to bottom. A layer names modules; a name includes the modules below it, and the
    /// longest name that matches counts. Modules of one layer may import each other.
    #[must_use]
    pub fn upward_imports(&self, layers: &[&[&str]]) -> Vec<String> {
        let mut violations = Vec::new();
        for (module, imports) in &self.imports {
            let Some(own) = layer_of(layers, module) else {
                violations.push(format!("{module} is in no layer"));
                continue;
            };
            for imported in imports {
                if layer_of(layers, imported).is_some_and(|layer| layer < own) {
                    violations.push(format!("{module} imports {imported}, which is in a higher layer"));
                }
            }
        }
        violations
    }

    /// Lists the groups of modules that import each other in a circle, among those that `within` selects.
    #[must_use]
    pub fn cycles(&self, within: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
        let selected: Vec<&str> =
            self.imports.keys().map(String::as_str).filter(|name| within(name)).collect();
        let reachable: BTreeMap<&str, BTreeSet<&str>> =
            selected.iter().map(|name| (*name, self.reachable(name, &within))).collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for name in &selected {
            if !reachable[name].contains(name) || !seen.insert(*name) {
                continue;
            }
            let group: Vec<String> = selected
                .iter()
                .filter(|other| reachable[name].contains(*other) && reachable[*other].contains(name))
                .map(|other| (*other).to_owned())
                .collect();
            seen.extend(selected.iter().filter(|other| group.iter().any(|member| member == *other)));
            cycles.push(group);
        }
        cycles
    }

    /// Returns the modules that `module` imports.
    #[must_use]
    pub fn imports_of(&self, module: &str) -> Vec<&str> {
        self.imports.get(module).into_iter().flatten().map(String::as_str).collect()
    }

    fn reachable(&self, from: &str, within: &impl Fn(&str) -> bool) -> BTreeSet<&str> {
        let mut found: BTreeSet<&str> = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            let next = self.imports_of(module).into_iter().filter(|name| within(name));
            let new: Vec<&str> = next.filter(|name| found.insert(name)).collect();
            open.extend(new);
        }
        found
    }
}

fn layer_of(layers: &[&[&str]], module: &str) -> Option<usize> {
    let named = |name: &str| module == name || module.starts_with(&format!("{name}::"));
    let all = layers.iter().enumerate().flat_map(|(at, layer)| layer.iter().map(move |name| (at, *name)));
    all.filter(|(_, name)| named(name)).max_by_key(|(_, name)| name.len()).map(|(at, _)| at)
}

/// `plan/steps.rs` and `plan/steps/mod.rs` are `plan::steps`.
fn module_name(relative: &Path) -> String {
    let path = relative.with_extension("");
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match parts.as_slice() {
        [root] if root == "lib" => ROOT.to_owned(),
        [folders @ .., last] if last == "mod" => folders.join("::"),
        parts => parts.join("::"),
    }
}

fn segments(name: &str) -> Vec<String> {
    if name == ROOT { Vec::new() } else { name.split("::").map(str::to_owned).collect() }
}

/// Drops the items with `#[cfg(test)]`, and notes the names of such modules.
fn without_tests(stream: TokenStream, module: &[String], tests: &mut BTreeSet<String>) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let attribute = match (&token, tokens.peek()) {
            (TokenTree::Punct(punct), Some(TokenTree::Group(group))) if punct.as_char() == '#' => {
                Some(group.stream().to_string().replace(' ', ""))
            }
            _ => None,
        };
        if attribute.as_deref() != Some("cfg(test)") {
            kept.push(token);
            continue;
        }
        tokens.next();
        let mut previous = String::new();
        for token in tokens.by_ref() {
            let ends = match &token {
                TokenTree::Punct(punct) => punct.as_char() == ';',
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && previous != "::",
                TokenTree::Ident(ident) if previous == "mod" => {
                    let path: Vec<String> = module.iter().cloned().chain([ident.to_string()]).collect();
                    tests.insert(path.join("::"));
                    false
                }
                _ => false,
            };
            if ends {
                break;
            }
            previous = match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => "::".to_owned(),
                token => token.to_string(),
            };
        }
    }
    kept.into_iter().collect()
}

struct Reader<'a> {
    names: &'a BTreeSet<Vec<String>>,
    found: &'a mut BTreeSet<String>,
}

impl Reader<'_> {
    /// Reads the code of `module`, which may be an inline module of a file.
    fn read(&mut self, stream: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    let inner = match (at.checked_sub(2).map(|at| &tokens[at]), at.checked_sub(1)) {
                        (Some(TokenTree::Ident(word)), Some(name)) if word == "mod" => {
                            let name = tokens[name].to_string();
                            module.iter().cloned().chain([name]).collect()
                        }
                        _ => module.to_vec(),
                    };
                    self.read(group.stream(), &inner);
                    at += 1;
                }
                TokenTree::Ident(word) if !follows_path(&tokens, at) => {
                    let word = word.to_string();
                    let start = match word.as_str() {
                        "crate" => Some(Vec::new()),
                        "self" => Some(module.to_vec()),
                        "super" => Some(parent(module)),
                        name => {
                            let child: Vec<String> =
                                module.iter().cloned().chain([name.to_owned()]).collect();
                            self.names.contains(&child).then_some(child)
                        }
                    };
                    match start.filter(|_| is_path(&tokens, at + 1)) {
                        Some(start) => at = self.path(&tokens, at + 1, start),
                        // Not a path: an ordinary word, or the name of a child module without `::` after it.
                        None => at += 1,
                    }
                }
                _ => at += 1,
            }
        }
    }

    /// Follows a path from the `::` at `at`, notes where it leads, and returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, mut path: Vec<String>) -> usize {
        while is_path(tokens, at) {
            match tokens.get(at + 2) {
                Some(TokenTree::Ident(word)) if word == "super" => path = parent(&path),
                Some(TokenTree::Ident(word)) => path.push(word.to_string()),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.branches(group.stream(), &path);
                    return at + 3;
                }
                // `::*`, or a turbofish.
                _ => break,
            }
            at += 3;
        }
        self.note(&path);
        at
    }

    /// Follows each branch of `prefix::{…}`.
    fn branches(&mut self, stream: TokenStream, prefix: &[String]) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        for branch in tokens.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ','))
        {
            match branch.first() {
                Some(TokenTree::Ident(word)) if word == "self" => self.note(prefix),
                Some(TokenTree::Ident(word)) => {
                    let path = prefix.iter().cloned().chain([word.to_string()]).collect();
                    self.path(branch, 1, path);
                }
                Some(_) => self.note(prefix),
                None => {}
            }
        }
    }

    /// Notes the longest prefix of a path that is a module.
    fn note(&mut self, path: &[String]) {
        let longest =
            (0..=path.len()).rev().map(|length| &path[..length]).find(|path| self.names.contains(*path));
        let name = longest.map(|path| if path.is_empty() { ROOT.to_owned() } else { path.join("::") });
        self.found.extend(name);
    }
}

fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    colon(at) && colon(at + 1)
}

fn follows_path(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2 && is_path(tokens, at - 2)
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &[&[&str]] = &[&["crate"], &["http"], &["store", "index"], &["domain"], &["domain::facts"]];

    fn modules(sources: &[(&str, &str)]) -> Modules {
        let sources = sources.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned()));
        Modules::from_sources(&sources.collect())
    }

    fn clean() -> Vec<(&'static str, &'static str)> {
        vec![
            ("crate", "pub mod http; pub mod store; pub mod index; pub mod domain;"),
            ("http", "use crate::{domain::{Rule, facts}, store}; fn f() { crate::index::get(); }"),
            ("store", "use crate::domain::facts::Fact;"),
            ("index", "use super::domain; #[cfg(test)] mod tests { use crate::http::Answer; }"),
            ("domain", "pub mod facts; use facts::Fact;"),
            (
                "domain::facts",
                "/// Read by `crate::http`.\npub struct Fact(&'static str); const A: &str = \"crate::http::x\";",
            ),
        ]
    }

    #[test]
    fn imports_are_found_in_use_trees_and_in_code_but_not_in_tests_comments_and_strings() {
        let modules = modules(&clean());
        assert_eq!(modules.imports_of("http"), ["domain", "domain::facts", "index", "store"]);
        assert_eq!(modules.imports_of("domain"), ["domain::facts"]);
        assert_eq!(modules.imports_of("index"), ["domain"]);
        assert!(modules.imports_of("domain::facts").is_empty());
        assert!(modules.upward_imports(LAYERS).is_empty());
        assert!(modules.cycles(|_| true).is_empty());
    }

    #[test]
    fn a_planted_upward_import_is_found() {
        let planted = [
            ("domain", "use crate::http::Answer;"),
            ("domain", "fn f() { let answer = super::http::Answer::default(); }"),
            ("domain", "fn f() { tracing::warn!(\"{}\", crate::http::NAME); }"),
            ("domain::facts", "use super::Rule;"),
            ("domain::facts", "use {crate::{store::{self, Row}}, std::fmt};"),
            ("index", "mod inner { use super::super::http::*; }"),
        ];
        for (module, source) in planted {
            let mut sources = clean();
            sources.retain(|(name, _)| *name != module);
            sources.push((module, source));
            let violations = modules(&sources).upward_imports(LAYERS);
            assert_eq!(violations.len(), 1, "{source}: {violations:?}");
            assert!(violations[0].starts_with(&format!("{module} imports ")), "{violations:?}");
        }
    }

    #[test]
    fn a_module_that_is_in_no_layer_is_found() {
        let mut sources = clean();
        sources.push(("new", ""));
        assert_eq!(modules(&sources).upward_imports(LAYERS), ["new is in no layer"]);
    }

    #[test]
    fn a_planted_cycle_is_found_once() {
        let mut sources = clean();
        sources.push(("domain::rules", "use super::facts::Fact;"));
        sources.retain(|(name, _)| *name != "domain::facts");
        sources.push(("domain::facts", "use super::rules::Rule;"));
        let modules = modules(&sources);
        assert_eq!(modules.cycles(|_| true), [["domain::facts", "domain::rules"]]);
        assert!(modules.cycles(|name| name != "domain::rules").is_empty());
    }

    #[test]
    fn names_of_files_are_names_of_modules() {
        for (file, name) in [
            ("lib.rs", "crate"),
            ("plan.rs", "plan"),
            ("plan/steps.rs", "plan::steps"),
            ("plan/mod.rs", "plan"),
        ] {
            assert_eq!(module_name(Path::new(file)), name);
        }
    }
}
