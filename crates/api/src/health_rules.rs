//! Rules for the health of custom kinds, as data: which conditions and fields mean that an object is ready, suspended or
//! failed.
//!
//! | file    | contents                                                        |
//! |---------|-----------------------------------------------------------------|
//! | `check` | [`Check`]: a condition, or a comparison of a field              |
//! | `path`  | [`FieldPath`]: `status.parents[*].conditions`                   |

mod check;
mod path;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::check::CheckDocument;
pub use self::check::{Check, Comparison, ConditionCheck, FieldCheck};
pub use self::path::{BadPath, FieldPath, Step};

/// The largest number of rules of the installation, or of a stack.
const MOST_RULES: usize = 100;
/// The largest size of these rules as JSON: agents store them in their clusters.
pub const LONGEST_RULES: usize = 32 * 1024;
/// The largest number of groups and of kinds of a rule.
const MOST_NAMES: usize = 100;
/// The largest number of checks of each list of a rule.
const MOST_CHECKS: usize = 50;
/// Stands for all kinds.
const ALL_KINDS: &str = "*";

/// How the health of some kinds is read from their status.
///
/// The first list that applies decides: an object has failed if one of `failed` holds. Otherwise, it is suspended if one of
/// `suspended` holds. Otherwise, it is ready if all of `ready` hold, and progressing if not.
///
/// A condition counts only if it refers to the current generation of the object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthRule {
    /// API groups such as `cert-manager.io`, and `*.example.com` for all groups below `example.com`.
    pub groups: Vec<String>,
    /// Names of kinds, or only `*` for all kinds of the groups.
    pub kinds: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<CheckDocument>)]
    pub failed: Vec<Check>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<CheckDocument>)]
    pub suspended: Vec<Check>,
    #[schema(value_type = Vec<CheckDocument>)]
    pub ready: Vec<Check>,
}

/// The health rules of the installation, or of a stack. The first one that matches a kind decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthRules {
    pub rules: Vec<HealthRule>,
}

impl HealthRules {
    /// Returns the rules as agents get them: a list in JSON. Their checksum covers these bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.rules).unwrap_or_default()
    }

    /// Checks each rule, and their number and size. Returns what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.rules.len() > MOST_RULES {
            return Err(format!("there must be at most {MOST_RULES} rules"));
        }
        if self.to_json().len() > LONGEST_RULES {
            return Err(format!("the rules must be at most {LONGEST_RULES} bytes of JSON"));
        }
        self.rules.iter().try_for_each(HealthRule::check)
    }
}

impl HealthRule {
    /// Returns whether the rule is for this kind.
    #[must_use]
    pub fn matches(&self, group: &str, kind: &str) -> bool {
        let is_group = |name: &String| match name.strip_prefix('*') {
            Some(domain) => group.len() > domain.len() && group.ends_with(domain),
            None => name == group,
        };
        self.groups.iter().any(is_group) && self.kinds.iter().any(|name| name == ALL_KINDS || name == kind)
    }

    /// Checks that the rule makes sense. Returns what does not.
    pub fn check(&self) -> Result<(), String> {
        self.problem().map_or(Ok(()), |problem| Err(format!("{self}: {problem}")))
    }

    fn problem(&self) -> Option<String> {
        for (name, entries) in [("groups", &self.groups), ("kinds", &self.kinds)] {
            if entries.is_empty() || entries.len() > MOST_NAMES {
                return Some(format!("{name} must have between 1 and {MOST_NAMES} entries"));
            }
        }
        let is_pattern = |name: &&String| is_group(name.strip_prefix("*.").unwrap_or(name));
        if let Some(group) = self.groups.iter().find(|group| !is_pattern(group)) {
            return Some(format!("{group:?} is not an API group, such as cert-manager.io or *.example.com"));
        }
        let is_all = self.kinds == [ALL_KINDS];
        if let Some(kind) = self.kinds.iter().find(|kind| !is_all && !is_kind(kind)) {
            return Some(format!("{kind:?} is not a kind, such as Certificate; * must be the only entry"));
        }
        if self.ready.iter().all(Check::may_be_absent) {
            return Some(
                "ready must have a check without or_absent; otherwise an object without status is ready"
                    .to_owned(),
            );
        }
        if self.failed.iter().chain(&self.suspended).any(Check::may_be_absent) {
            return Some("or_absent is only for checks in ready".to_owned());
        }
        let lists = [("failed", &self.failed), ("suspended", &self.suspended), ("ready", &self.ready)];
        let too_long = lists.into_iter().find(|(_, checks)| checks.len() > MOST_CHECKS);
        too_long.map(|(name, _)| format!("{name} must have at most {MOST_CHECKS} checks"))
    }
}

/// Groups and kinds, such as `cert-manager.io/Issuer,ClusterIssuer`.
impl fmt::Display for HealthRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.groups.join(","), self.kinds.join(","))
    }
}

fn is_group(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_kind(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.len() <= 253
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
