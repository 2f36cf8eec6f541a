//! The label selector language, as in Kubernetes: `env=prod,region in (eu,us),!canary`.
//!
//! A selector is parsed once and matched often; the broker indexes selectors by one of their
//! equality terms, which is why the requirements are visible.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::AgentId;
use crate::names::{BadLabel, Labels, Name, check_label_key, check_label_value};
use crate::page::Page;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Requirement {
    In { key: String, values: Vec<String> },
    NotIn { key: String, values: Vec<String> },
    Exists { key: String },
    Absent { key: String },
}

impl Requirement {
    /// Returns whether the requirement holds, given a lookup of label values.
    #[must_use]
    pub fn holds<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        let among = |value: &str, values: &[String]| values.iter().any(|one| one == value);
        match self {
            Self::In { key, values } => value_of(key).is_some_and(|value| among(value, values)),
            Self::NotIn { key, values } => value_of(key).is_none_or(|value| !among(value, values)),
            Self::Exists { key } => value_of(key).is_some(),
            Self::Absent { key } => value_of(key).is_none(),
        }
    }
}

/// A conjunction of requirements. `*` matches everything; the empty text is refused, because an
/// empty variable in a script must not mean the whole fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// The maximum length of a selector, because each is matched against many agents.
pub const LONGEST_SELECTOR: usize = 4096;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadSelector {
    #[error("a selector has at most {LONGEST_SELECTOR} characters, not {0}")]
    Long(usize),
    #[error("an empty selector would match every agent; use '*' to match all agents")]
    Empty,
    #[error("'(' without ')' in {0:?}")]
    Unclosed(String),
    #[error("cannot parse {0:?}; use key=value, key!=value, key in (a,b), key notin (a,b), key or !key")]
    Term(String),
    #[error(transparent)]
    Label(#[from] BadLabel),
}

impl Selector {
    #[must_use]
    pub fn everything() -> Self {
        Self { requirements: Vec::new() }
    }

    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.holds(|key| labels.get(key).map(String::as_str))
    }

    /// As `matches`, with a lookup of label values.
    #[must_use]
    pub fn holds<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(&value_of))
    }

    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl FromStr for Selector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > LONGEST_SELECTOR {
            return Err(BadSelector::Long(text.len()));
        }
        let text = text.trim();
        if text.is_empty() {
            return Err(BadSelector::Empty);
        }
        if text == "*" {
            return Ok(Self::everything());
        }
        let mut requirements =
            terms(text)?.iter().map(|term| requirement(term)).collect::<Result<Vec<_>, _>>()?;
        requirements.sort();
        requirements.dedup();
        Ok(Self { requirements })
    }
}

/// Splits at commas that are not inside parentheses.
fn terms(text: &str) -> Result<Vec<&str>, BadSelector> {
    let (mut terms, mut start, mut open) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' => open = true,
            ')' => open = false,
            ',' if !open => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(BadSelector::Unclosed(text.to_owned()));
    }
    terms.push(&text[start..]);
    Ok(terms)
}

fn requirement(term: &str) -> Result<Requirement, BadSelector> {
    let term = term.trim();
    let bad = || BadSelector::Term(term.to_owned());
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement::Absent { key: checked_key(key)? });
    }
    if let Some(inside) = term.strip_suffix(')') {
        let (head, list) = inside.split_once('(').ok_or_else(bad)?;
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace).ok_or_else(bad)?;
        let key = checked_key(key)?;
        let mut values =
            list.split(',').map(|value| checked_value(&key, value)).collect::<Result<Vec<_>, _>>()?;
        values.sort();
        values.dedup();
        return match operator {
            "in" => Ok(Requirement::In { key, values }),
            "notin" => Ok(Requirement::NotIn { key, values }),
            _ => Err(bad()),
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        let key = checked_key(key)?;
        let values = vec![checked_value(&key, value)?];
        return Ok(Requirement::NotIn { key, values });
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        let key = checked_key(key)?;
        let values = vec![checked_value(&key, value)?];
        return Ok(Requirement::In { key, values });
    }
    if term.is_empty() {
        return Err(bad());
    }
    Ok(Requirement::Exists { key: checked_key(term)? })
}

fn checked_key(key: &str) -> Result<String, BadSelector> {
    let key = key.trim();
    check_label_key(key)?;
    Ok(key.to_owned())
}

fn checked_value(key: &str, value: &str) -> Result<String, BadSelector> {
    let value = value.trim();
    check_label_value(key, value)?;
    Ok(value.to_owned())
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In { key, values } if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Self::NotIn { key, values } if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            Self::In { key, values } => write!(f, "{key} in ({})", values.join(",")),
            Self::NotIn { key, values } => write!(f, "{key} notin ({})", values.join(",")),
            Self::Exists { key } => f.write_str(key),
            Self::Absent { key } => write!(f, "!{key}"),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requirements.is_empty() {
            return f.write_str("*");
        }
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Serialize for Selector {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Selector {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        String::schema()
    }
}
impl ToSchema for Selector {}

/// The agents that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelectorPreview {
    /// The number of agents.
    pub agents: u64,
    /// The agents that the stack of the request would gain, keep and lose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackPreview>,
    /// The agents, ordered by name, in pages.
    #[serde(flatten)]
    pub page: Page<SelectedAgent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelectedAgent {
    pub id: AgentId,
    pub name: Name,
}

/// How another selector would change the set of agents that a stack targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackPreview {
    pub gained: u64,
    pub kept: u64,
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn matches_as_kubernetes_does() {
        let prod_eu = labels(&[("env", "prod"), ("region", "eu")]);
        let cases = [
            ("env=prod", true),
            ("env==prod", true),
            ("env!=prod", false),
            ("missing!=x", true),
            ("env in (dev, prod)", true),
            ("env notin (dev,prod)", false),
            ("missing notin (x)", true),
            ("region", true),
            ("!region", false),
            ("!canary", true),
            ("env=prod,region in (eu,us),!canary", true),
            ("env=prod,region=us", false),
            ("*", true),
        ];
        for (text, expected) in cases {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.matches(&prod_eu), expected, "{text}");
            let again: Selector = selector.to_string().parse().unwrap();
            assert_eq!(again, selector, "{text} survives being printed");
        }
    }

    #[test]
    fn an_empty_or_broken_selector_is_refused() {
        for text in ["", "  ", "env in (a", "env=a b", "env=prod,", "=x", "!", "env within (a)"] {
            assert!(text.parse::<Selector>().is_err(), "{text:?}");
        }
    }
}
