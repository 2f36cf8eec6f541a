//! Objects of the kinds with a built-in rule, as their controllers write them: one folder for each kind, with one file for each
//! state.

use std::fs;
use std::path::{Path, PathBuf};

use brokkr_manifest::{Budget, Identity, parse_live};

use super::super::HealthState::{Failed, Progressing, Ready};
use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Returns the names of the folders, such as `cert-manager.io_Certificate`.
fn folders() -> Vec<String> {
    let entries = fs::read_dir(fixtures()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(file: &Path) -> (Identity, Value) {
    let objects = parse_live(&fs::read(file).unwrap(), &Budget::default());
    objects.unwrap_or_else(|error| panic!("{}: {error}", file.display())).remove(0)
}

#[test]
fn f6_the_health_of_common_custom_kinds_is_read_from_their_status() {
    let mut wrong = Vec::new();
    for folder in folders() {
        for (file, expected) in [("ready", Ready), ("progressing", Progressing), ("failed", Failed)] {
            let (identity, body) = read(&fixtures().join(&folder).join(format!("{file}.yaml")));
            assert_eq!(format!("{}_{}", identity.group, identity.kind), folder);
            let status = body["status"].clone();
            let object = LiveObject::new(&identity, body);
            let Decision { health, rule } = decide(&object.view(), &[], NOW);
            let is_explained = expected != Failed || contains(&status, &health.message.to_string());
            if health.state != expected || !is_explained || !matches!(rule, AppliedRule::BuiltInRule(_)) {
                wrong.push(format!("{folder}/{file}.yaml: {health:?} by {rule:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns whether one of the texts in a status is this message.
fn contains(status: &Value, message: &str) -> bool {
    match status {
        Value::String(text) => text == message,
        Value::Array(items) => items.iter().any(|item| contains(item, message)),
        Value::Object(fields) => fields.values().any(|value| contains(value, message)),
        _ => false,
    }
}

#[test]
fn every_built_in_rule_has_objects_of_each_of_its_kinds() {
    let folders = folders();
    let kinds: Vec<(&str, &str)> = folders.iter().map(|name| name.split_once('_').unwrap()).collect();
    for rule in rules::all_built_in() {
        for name in &rule.kinds {
            let has_objects =
                kinds.iter().any(|(group, kind)| rule.matches(group, kind) && (name == "*" || name == kind));
            assert!(has_objects, "{rule}: no fixtures of {name}");
        }
    }
    assert!(folders.len() >= 10, "{folders:?}");
}
