//! Paths to the fields of an object.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest number of steps of a path.
const MOST_STEPS: usize = 20;

/// The way to a field: names with dots between them, `[*]` for every element of a list, and names with other characters in
/// brackets and quotes: `status.parents[*].conditions`, `metadata.annotations["example.com/paused"]`.
///
/// It begins with `spec` or `status`. Of the metadata, only the generation and annotations can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    root: String,
    steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Field(String),
    /// Every element of a list.
    Each,
}

/// Not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not a path: {problem}")]
pub struct BadPath {
    path: String,
    problem: &'static str,
}

impl FieldPath {
    /// Returns `status.conditions`.
    pub(super) fn conditions() -> Self {
        Self { root: "status".to_owned(), steps: vec![Step::Field("conditions".to_owned())] }
    }

    /// Returns the first name: `spec`, `status` or `metadata`.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns the steps after the first name.
    #[must_use]
    pub fn below_root(&self) -> &[Step] {
        &self.steps
    }

    /// Returns whether it leads to several values.
    pub(super) fn has_each(&self) -> bool {
        self.steps.contains(&Step::Each)
    }
}

impl FromStr for FieldPath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, BadPath> {
        parsed(text).map_err(|problem| BadPath { path: text.to_owned(), problem })
    }
}

fn parsed(text: &str) -> Result<FieldPath, &'static str> {
    let (root, mut rest) = name(text)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = if let Some(after) = rest.strip_prefix('.') {
            let (name, after) = name(after)?;
            (Step::Field(name.to_owned()), after)
        } else if let Some(after) = rest.strip_prefix("[*]") {
            (Step::Each, after)
        } else if let Some((name, after)) = quoted(rest) {
            (Step::Field(name.to_owned()), after)
        } else {
            return Err("brackets contain a name in quotes, or * for every element of a list");
        };
        steps.push(step);
        rest = after;
    }
    if steps.len() > MOST_STEPS {
        return Err("it has more than 20 steps");
    }
    let is_readable = match (root, steps.as_slice()) {
        ("spec" | "status", _) => true,
        ("metadata", [Step::Field(field)]) => field == "generation",
        ("metadata", [Step::Field(field), Step::Field(_)]) => field == "annotations",
        _ => false,
    };
    if !is_readable {
        return Err("only spec, status, metadata.generation and one of metadata.annotations can be read");
    }
    Ok(FieldPath { root: root.to_owned(), steps })
}

/// Splits off a name.
fn name(text: &str) -> Result<(&str, &str), &'static str> {
    let (name, rest) = text.split_at(text.find(['.', '[']).unwrap_or(text.len()));
    if name.is_empty() {
        return Err("a name is missing");
    }
    if is_plain(name) {
        Ok((name, rest))
    } else {
        Err("names with other characters than letters, digits, - and _ must be in brackets and quotes")
    }
}

fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Splits off `["NAME"]` or `['NAME']`.
fn quoted(text: &str) -> Option<(&str, &str)> {
    ["\"", "'"].into_iter().find_map(|quote| {
        let (name, rest) = text.strip_prefix('[')?.strip_prefix(quote)?.split_once(&format!("{quote}]"))?;
        (!name.is_empty()).then_some((name, rest))
    })
}

impl fmt::Display for FieldPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.root)?;
        for step in &self.steps {
            match step {
                Step::Field(name) if is_plain(name) => write!(out, ".{name}")?,
                Step::Field(name) if name.contains('"') => write!(out, "['{name}']")?,
                Step::Field(name) => write!(out, "[\"{name}\"]")?,
                Step::Each => out.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
