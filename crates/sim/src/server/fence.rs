//! The fence: the admission policies of `deploy/fence.yaml`, as far as they concern the objects of stacks.
//!
//! The API server evaluates them after its own validation, and for dry runs too. So a request that names another uid, or
//! an invalid object, gets the refusal of the server.

use brokkr_agent::model::{Failure, FailureClass};
use brokkr_agent::resource::KindName;
use brokkr_api::reason::Reason;
use brokkr_manifest::Key;

use super::request::refusal;
use super::{Marks, Server};

const SYSTEM_NAMESPACES: [&str; 5] =
    ["brokkr-system", "default", "kube-system", "kube-public", "kube-node-lease"];

/// A write by the account of the agent.
pub(super) enum FencedWrite<'a> {
    Create { new: &'a Marks },
    Update { old: &'a Marks, new: &'a Marks },
    Delete { old: &'a Marks },
}

impl Server {
    /// Checks a write against the fence, if there is one.
    pub(super) fn check_fence(&self, key: &Key, write: &FencedWrite<'_>) -> Result<(), Failure> {
        let Some(agent) = self.fence else { return Ok(()) };
        let agent = agent.to_string();
        let may = |marks: &Marks| marks.agent.as_ref().is_none_or(|of| *of == agent);
        let allowed = match write {
            FencedWrite::Create { new } => new.agent.is_some() && may(new),
            FencedWrite::Update { old, new } => {
                // An object without our label may be adopted, and nothing else.
                (old.agent.is_some() || new.agent.is_some()) && may(old) && may(new) && !goes_back(old, new)
            }
            FencedWrite::Delete { old } => old.agent.is_some() && may(old),
        };
        let is_system = KindName::of(key).is_namespace() && SYSTEM_NAMESPACES.contains(&key.name.as_str());
        if allowed && !is_system {
            return Ok(());
        }
        Err(refusal(FailureClass::Permanent, Reason::Fenced))
    }
}

/// Returns whether the sequence decreases within a stack. Removing the label is a release, which may remove it.
fn goes_back(old: &Marks, new: &Marks) -> bool {
    let within_a_stack = old.agent.is_some() && new.agent.is_some() && old.stack == new.stack;
    let Some(earlier) = number(old.sequence.as_deref()).filter(|_| within_a_stack) else { return false };
    number(new.sequence.as_deref()).is_none_or(|later| later < earlier)
}

/// Returns the number, if the fence can read it; an annotation that is none may be repaired.
fn number(text: Option<&str>) -> Option<u64> {
    let text = text?;
    let is_number = (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_may_grow_be_repaired_or_change_with_its_stack_and_never_decrease() {
        let marks = |stack: &str, sequence: &str| Marks {
            agent: Some("me".into()),
            stack: Some(stack.into()),
            sequence: Some(sequence.into()),
            ..Marks::default()
        };
        let old = marks("one", "7");
        assert!(!goes_back(&old, &marks("one", "7")));
        assert!(!goes_back(&old, &marks("two", "3")));
        assert!(goes_back(&old, &marks("one", "6")));
        assert!(goes_back(&old, &marks("one", "many")));
        assert!(!goes_back(&marks("one", "many"), &marks("one", "1")));
        assert!(!goes_back(&marks("one", "9999999999999999999"), &marks("one", "1")), "more than 18 digits");
    }
}
