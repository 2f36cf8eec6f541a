//! Names and labels that users choose. They are validated once, when a request is parsed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Key-value pairs that selectors match. Keys and values follow Kubernetes' rules for labels.
pub type Labels = BTreeMap<String, String>;

/// The project that exists from the start.
pub const DEFAULT_PROJECT: &str = "default";

/// The name of a resource such as an agent: a DNS label of at most 63 lower-case letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Name(String);

#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a name: use 1 to 63 lower-case letters, digits and '-', starting and ending with a letter or digit"
)]
pub struct BadName(String);

impl Name {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let good = !text.is_empty()
            && text.len() <= 63
            && text.chars().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if good { Ok(Self(text.to_owned())) } else { Err(BadName(text.to_owned())) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadLabel {
    #[error("label key {0:?} must be [prefix/]name with a name of 1 to 63 letters, digits, '-', '_' or '.'")]
    Key(String),
    #[error("the value of label {0:?} must be empty or 1 to 63 letters, digits, '-', '_' or '.'")]
    Value(String),
    #[error("{0:?} is not of the form key=value")]
    Form(String),
    #[error("there are {0} labels, but at most {MOST_LABELS} are allowed")]
    Many(usize),
    #[error("annotations have {0} bytes in total, but at most {ANNOTATION_BYTES} are allowed")]
    Large(usize),
}

/// The maximum number of labels: every replica has the labels of every agent in memory.
pub const MOST_LABELS: usize = 64;
/// The maximum size of all annotations together, as in Kubernetes.
pub const ANNOTATION_BYTES: usize = 256 * 1024;

fn is_qualified(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

/// Checks one label key by the rules of Kubernetes.
pub fn check_label_key(key: &str) -> Result<(), BadLabel> {
    let name = match key.split_once('/') {
        Some((prefix, name)) if !prefix.is_empty() && prefix.len() <= 253 => name,
        Some(_) => return Err(BadLabel::Key(key.to_owned())),
        None => key,
    };
    if is_qualified(name) { Ok(()) } else { Err(BadLabel::Key(key.to_owned())) }
}

/// Checks one label value by the rules of Kubernetes; `key` is named in the error.
pub fn check_label_value(key: &str, value: &str) -> Result<(), BadLabel> {
    if value.is_empty() || is_qualified(value) { Ok(()) } else { Err(BadLabel::Value(key.to_owned())) }
}

/// Checks a whole set of labels.
pub fn check_labels(labels: &Labels) -> Result<(), BadLabel> {
    if labels.len() > MOST_LABELS {
        return Err(BadLabel::Many(labels.len()));
    }
    labels.iter().try_for_each(|(key, value)| {
        check_label_key(key)?;
        check_label_value(key, value)
    })
}

/// Checks a whole set of annotations: keys as for labels, and a total size. Values are free text.
pub fn check_annotations(annotations: &Labels) -> Result<(), BadLabel> {
    let bytes = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ANNOTATION_BYTES {
        return Err(BadLabel::Large(bytes));
    }
    annotations.keys().try_for_each(|key| check_label_key(key))
}

/// Parses a label of the form `key=value`, as used in flags.
pub fn parse_label(text: &str) -> Result<(String, String), BadLabel> {
    let (key, value) = text.split_once('=').ok_or_else(|| BadLabel::Form(text.to_owned()))?;
    check_label_key(key)?;
    check_label_value(key, value)?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "shop-1", "0x", &"a".repeat(63)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "ä", &"a".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_follow_the_rules_of_kubernetes() {
        assert_eq!(parse_label("env=prod"), Ok(("env".into(), "prod".into())));
        assert!(parse_label("example.com/tier=").is_ok());
        assert!(parse_label("env").is_err());
        assert!(parse_label("=x").is_err());
        assert!(parse_label("env=a b").is_err());
        assert!(parse_label("/env=a").is_err());
    }

    #[test]
    fn labels_and_annotations_are_bounded() {
        let labels = |count: usize| (0..count).map(|count| (format!("k{count}"), "v".to_owned())).collect();
        assert_eq!(check_labels(&labels(MOST_LABELS)), Ok(()));
        assert_eq!(check_labels(&labels(MOST_LABELS + 1)), Err(BadLabel::Many(MOST_LABELS + 1)));
        let annotation = |bytes: usize| [("a".to_owned(), "ö \n".repeat(bytes / 4))].into();
        assert_eq!(check_annotations(&annotation(1000)), Ok(()));
        assert_eq!(
            check_annotations(&annotation(ANNOTATION_BYTES)),
            Err(BadLabel::Large(ANNOTATION_BYTES + 1))
        );
    }
}
