//! Differences between two versions, removals first.

use anstyle::{AnsiColor, Style};
use brokkr_api::objects::{Diff, FieldDiff, ResourceChange, ResourceDiff};
use serde_json::Value;

use super::text::{clean, count, short};
use super::{RenderOptions, Show};

const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const CHANGED: Style = AnsiColor::Yellow.on_default();
/// Values are cut to this if the width is not known.
const VALUE: usize = 120;

/// A diff, and what the version was compared with.
#[derive(Debug, serde::Serialize)]
pub struct Compared {
    #[serde(flatten)]
    pub diff: Diff,
    /// The local manifests, if they were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Compared {
    pub fn differs(&self) -> bool {
        self.diff.added + self.diff.removed + self.diff.changed > 0
    }

    fn title(&self) -> String {
        match &self.file {
            Some(file) => format!("{} → {file}", self.diff.from),
            None => format!("{} → {}", self.diff.from, self.diff.to),
        }
    }
}

impl Show for Compared {
    fn text(&self, options: &RenderOptions) -> String {
        let Diff { added, removed, changed, unchanged, resources, truncated, .. } = &self.diff;
        if !self.differs() {
            return format!("{}: no difference in {}", self.title(), count(*unchanged, "resource"));
        }
        let mut lines = Vec::new();
        for change in [ResourceChange::Removed, ResourceChange::Changed, ResourceChange::Added] {
            for resource in resources.iter().filter(|resource| resource.change == change) {
                lines.push(headline(resource));
                lines.extend(resource.fields.iter().map(|one| field(one, options)));
            }
        }
        if *truncated {
            lines.push("… more differences are not shown".to_owned());
        }
        lines.push(String::new());
        lines.push(format!(
            "{}: {removed} removed, {changed} changed, {added} added, {unchanged} unchanged",
            self.title()
        ));
        lines.join("\n")
    }

    fn names(&self) -> Vec<String> {
        self.diff.resources.iter().map(name).collect()
    }
}

fn headline(resource: &ResourceDiff) -> String {
    let (sign, style) = match resource.change {
        ResourceChange::Added => ("+", ADDED),
        ResourceChange::Removed => ("-", REMOVED),
        ResourceChange::Changed => ("~", CHANGED),
    };
    format!("{style}{sign} {}{style:#}", name(resource))
}

/// `Deployment.apps shop/web`
fn name(resource: &ResourceDiff) -> String {
    let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
    let prefix = resource.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    clean(format!("{}{group} {prefix}{}", resource.kind, resource.name))
}

fn field(field: &FieldDiff, options: &RenderOptions) -> String {
    let path = clean(&field.path);
    let available = match options.width {
        _ if options.wide => usize::MAX,
        Some(width) => width.saturating_sub(path.chars().count() + 9) / 2,
        None => VALUE,
    };
    let value = |value: &Value| short(&plain(value), available.max(8));
    match (&field.before, &field.after) {
        (Some(before), Some(after)) => {
            format!("    {path}: {REMOVED}{}{REMOVED:#} → {ADDED}{}{ADDED:#}", value(before), value(after))
        }
        (None, Some(after)) => format!("    {ADDED}+ {path}: {}{ADDED:#}", value(after)),
        (Some(before), None) => format!("    {REMOVED}- {path}: {}{REMOVED:#}", value(before)),
        (None, None) => format!("    {path}"),
    }
}

/// Returns a string without quotes, unless it is empty or contains control characters; anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains(char::is_control) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;
    use serde_json::json;

    use super::super::samples::rendered;
    use super::*;

    fn resource(kind: &str, change: ResourceChange, fields: Vec<FieldDiff>) -> ResourceDiff {
        ResourceDiff {
            group: if kind == "Deployment" { "apps".into() } else { String::new() },
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: "web".into(),
            change,
            fields,
        }
    }

    #[test]
    fn diff() {
        let field = |path: &str, before, after| FieldDiff { path: path.into(), before, after };
        let long = "a sentence that is longer than half of a terminal, and then some more of it to be sure";
        let diff = Diff {
            from: SequenceId(41),
            to: SequenceId(42),
            added: 1,
            removed: 1,
            changed: 1,
            unchanged: 12,
            resources: vec![
                resource("ConfigMap", ResourceChange::Added, Vec::new()),
                resource(
                    "Deployment",
                    ResourceChange::Changed,
                    vec![
                        field("spec.replicas", Some(json!(2)), Some(json!(3))),
                        field(
                            "spec.template.spec.containers[web].image",
                            Some(json!("web:1")),
                            Some(json!("web:2")),
                        ),
                        field("metadata.annotations.note", Some(json!("short")), Some(json!(long))),
                        field("spec.paused", None, Some(json!(true))),
                        field("spec.minReadySeconds", Some(json!(5)), None),
                    ],
                ),
                resource("Service", ResourceChange::Removed, Vec::new()),
            ],
            truncated: true,
        };
        let same = Diff { added: 0, removed: 0, changed: 0, resources: Vec::new(), truncated: false, ..diff };
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            rendered(&Compared { diff, file: None }),
            rendered(&Compared { diff: same, file: Some("deploy".into()) })
        ));
    }
}
