//! The layering of the broker, as the table in `src/lib.rs` describes it.

use std::collections::BTreeMap;
use std::path::Path;

use brokkr_archtest::Modules;

/// From top to bottom. A module imports only from its own layer and from layers below.
const LAYERS: &[&[&str]] = &[
    &["crate", "commands", "serve", "config", "args", "admin", "open_files"],
    &["router"],
    &["listener"],
    &["http"],
    &["tasks"],
    &["state"],
    &["access"],
    &["index"],
    &["metrics"],
    &["store"],
    &["domain"],
    &["telemetry"],
    &["error"],
];

#[test]
fn no_module_imports_from_a_higher_layer() {
    let modules = Modules::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert_eq!(modules.upward_imports(LAYERS), Vec::<String>::new());
}

#[test]
fn a_planted_upward_import_is_found() {
    let planted = BTreeMap::from([
        ("crate".to_owned(), "pub mod http; pub mod store;".to_owned()),
        ("http".to_owned(), "use crate::store;".to_owned()),
        ("store".to_owned(), "use crate::http;".to_owned()),
    ]);
    let found = Modules::from_sources(&planted).upward_imports(LAYERS);
    assert_eq!(found.len(), 1, "{found:?}");
}
