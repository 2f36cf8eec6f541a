//! Suspensions: a stack, or one object of it, is left alone for some time.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{StackId, SuspensionId};
use crate::selector::Selector;

/// The largest patch of an object that is reported at the end of a suspension, as JSON.
pub const LONGEST_PATCH: usize = 32 * 1024;
/// The longest suspension: 30 days.
pub const LONGEST_SECONDS: u32 = 30 * 24 * 60 * 60;

/// A suspension: the agents apply, repair and prune nothing of the stack, or of one object of it, until it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Suspension {
    pub id: SuspensionId,
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// Only on this agent, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only on the agents with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Only this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectName>,
    /// How long, in time that the broker has watched: time in which no broker runs does not count.
    pub seconds: u32,
    /// What is left of it; zero when it has ended.
    pub left_seconds: u32,
    pub reason: String,
    pub created_by: String,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<SuspensionEnd>,
}

/// How and when a suspension ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuspensionEnd {
    pub at: Timestamp,
    pub cause: EndCause,
    /// Who ended it; absent if it expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EndCause {
    /// Its time was over.
    Expired,
    /// It was ended by a command.
    Resumed,
    /// A forced deletion or rollback ended it.
    Forced,
}

/// Suspends a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSuspension {
    /// Only on this agent: its name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only on the agents with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Only this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectName>,
    /// How long: at most 2592000, 30 days.
    pub seconds: u32,
    pub reason: String,
}

impl NewSuspension {
    /// Checks that the values make sense. Returns what does not.
    pub fn check(&self) -> Result<(), String> {
        if self.agent.is_some() && self.selector.is_some() {
            return Err("name an agent or a selector, not both".to_owned());
        }
        if self.seconds == 0 || self.seconds > LONGEST_SECONDS {
            return Err(format!("seconds has to be between 1 and {LONGEST_SECONDS} (30 days)"));
        }
        if self.reason.trim().is_empty() || self.reason.len() > 500 {
            return Err("give a reason of at most 500 characters".to_owned());
        }
        match &self.object {
            Some(object) if object.kind.is_empty() || object.name.is_empty() => {
                Err("an object needs a kind and a name".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Ends suspensions of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EndSuspensions {
    /// Only this one; absent: all that have not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<SuspensionId>,
}

/// An object by its kind and name, such as `Deployment/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectName {
    /// As in manifests; case does not matter.
    pub kind: String,
    pub name: String,
    /// Only in this namespace; absent: in any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl ObjectName {
    /// Returns whether this names the object.
    #[must_use]
    pub fn matches(&self, kind: &str, namespace: Option<&str>, name: &str) -> bool {
        self.kind.eq_ignore_ascii_case(kind)
            && self.name == name
            && self.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted))
    }
}

impl FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { kind: kind.to_owned(), name: name.to_owned(), namespace: None })
            }
            _ => Err(format!("{text:?} is not KIND/NAME, such as Deployment/web")),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// A suspension as an agent gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Suspended {
    pub id: SuspensionId,
    /// Only this object; absent: the whole stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectName>,
    /// After this time, as the agent measures it, the suspension ends even if the broker does not end it.
    pub seconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_kind_and_name_and_the_namespace_counts_only_if_it_is_given() {
        let any: ObjectName = "deployment/web".parse().unwrap();
        assert!(any.matches("Deployment", Some("shop"), "web"));
        assert!(any.matches("Deployment", None, "web"));
        assert!(!any.matches("Deployment", Some("shop"), "web-2"));
        assert!(!any.matches("StatefulSet", Some("shop"), "web"));
        let one = ObjectName { namespace: Some("shop".into()), ..any };
        assert!(one.matches("Deployment", Some("shop"), "web"));
        assert!(!one.matches("Deployment", Some("depot"), "web"));
        for wrong in ["web", "/web", "Deployment/", "shop/Deployment/web"] {
            assert!(wrong.parse::<ObjectName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_suspension_needs_a_time_a_reason_and_at_most_one_choice_of_agents() {
        let valid = NewSuspension {
            agent: None,
            selector: None,
            object: None,
            seconds: 60,
            reason: "debugging".into(),
        };
        assert_eq!(valid.check(), Ok(()));
        let selector = "env=prod".parse().ok();
        for wrong in [
            NewSuspension { seconds: 0, ..valid.clone() },
            NewSuspension { seconds: LONGEST_SECONDS + 1, ..valid.clone() },
            NewSuspension { reason: " ".into(), ..valid.clone() },
            NewSuspension { agent: Some("a".into()), selector, ..valid },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
