//! The target state of an agent: a pure function of the facts.

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::{Approval, Envelope, Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::objects::JobRef;
use brokkr_api::protocol::PROTOCOL_VERSION;
use brokkr_api::windows::Schedule;
use brokkr_api::{InstallationId, SequenceId};
use bytes::Bytes;
use jiff::Timestamp;

use super::facts::{AgentFacts, ObjectFacts, StackFacts};
use super::grants::Right;
use super::release::{kept_by, released_to, was_deleted_from};
use super::targeting::{reaches, reasons, targeted_before};

/// An encoded envelope; its tag is the digest of exactly these bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedEnvelope {
    pub bytes: Bytes,
    /// Quoted, as in the header.
    pub etag: String,
}

/// What an agent should do about a stack: apply `object`, or carry out `removal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredObject {
    pub object: ObjectFacts,
    pub removal: Option<Removal>,
    /// Only an agent that has begun the version keeps it.
    pub withdrawn: bool,
    /// What the stack's project may do on the agent. With `Nothing`, the stack is frozen there.
    pub right: Right,
    /// When the agent may begin; none: at any time.
    pub schedule: Option<Schedule>,
    pub targeted_at: Timestamp,
    pub released_at: Timestamp,
}

impl DesiredObject {
    #[must_use]
    pub fn sequence_id(&self) -> SequenceId {
        self.object.sequence_id
    }
}

/// Returns what an active agent should do about the stack; none if there is nothing to do.
#[must_use]
pub fn desired(agent: &AgentFacts, stack: &StackFacts) -> Option<DesiredObject> {
    let right = stack.grants.on(agent);
    let reasons = reasons(agent, stack);
    let targeted_since = reasons.iter().map(|reason| reason.since).min();
    let released = released_to(agent, stack);
    let withdrawn = released.is_none();
    let kept = || released.or_else(|| agent.holds(stack.id).then(|| kept_by(agent, stack))?).copied();
    let (object, removal) = match targeted_since {
        Some(_) => {
            let object = kept()?;
            if !agent.holds(stack.id) && stack.base == Some(object) && was_deleted_from(agent, stack) {
                return None;
            }
            // A deletion that is being rolled out.
            let removal = object.is_deletion_marker.then(|| deletion(&object));
            (object, removal)
        }
        // A withdrawn grant freezes the stack: revoking rights must not delete anything.
        None if right == Right::Nothing => (kept()?, None),
        // The newest version, released or not: the agent may have one that was withdrawn, and refuses to go back.
        None => {
            let object = *stack.newest()?;
            (object, Some(if stack.deleted { deletion(&object) } else { Removal::Untargeted }))
        }
    };
    // Removals are not stored per agent: they follow from the stacks that an agent holds. An agent that does not hold the
    // stack has nothing to remove.
    if (removal.is_some() || targeted_since.is_none()) && !agent.holds(stack.id) {
        return None;
    }
    let targeted_at = targeted_since.map_or(object.published_at, |since| since.max(object.published_at));
    let withdrawn = withdrawn && removal.is_none();
    // That a version was urgent says nothing about agents that were targeted later, or are no longer.
    let is_urgent = object.is_urgent && targeted_before(agent, stack, object.published_at);
    let schedule = if is_urgent { None } else { stack.windows.schedule(agent, &stack.project) };
    Some(DesiredObject { object, removal, withdrawn, right, schedule, targeted_at, released_at: targeted_at })
}

/// Returns the version that an agent without anything to do waits for: it is not released to the agent yet.
#[must_use]
pub fn awaited(agent: &AgentFacts, stack: &StackFacts) -> Option<SequenceId> {
    let newest = stack.newest().filter(|newest| !newest.is_deletion_marker && reaches(agent, stack))?;
    Some(newest.sequence_id)
}

/// Returns how a deletion with this marker is carried out.
#[must_use]
pub fn deletion(marker: &ObjectFacts) -> Removal {
    if marker.keeps_resources { Removal::Released } else { Removal::Deleted }
}

/// Returns the target state of an agent. `stacks` has to contain every stack that may reach the agent and
/// every stack that the agent holds, unless the broker does not know it. Other stacks, the order and
/// duplicates do not matter. `health_rules` are those of the installation.
#[must_use]
pub fn envelope<'a>(
    installation: InstallationId,
    agent: &AgentFacts,
    stacks: impl IntoIterator<Item = &'a StackFacts>,
    health_rules: Option<Checksum>,
) -> Envelope {
    let mut targets: Vec<TargetStack> = match agent.status {
        AgentStatus::Inactive => Vec::new(),
        AgentStatus::Active => stacks.into_iter().filter_map(|stack| target(agent, stack)).collect(),
    };
    targets.sort_by_key(|target| target.sequence_id);
    targets.dedup_by_key(|target| target.sequence_id);
    Envelope {
        protocol: PROTOCOL_VERSION,
        installation,
        agent: agent.id,
        status: agent.status,
        stacks: targets,
        health_rules,
    }
}

/// Returns the entry of the stack in the target state of an active agent.
#[must_use]
pub fn target(agent: &AgentFacts, stack: &StackFacts) -> Option<TargetStack> {
    let desired = desired(agent, stack)?;
    Some(TargetStack {
        project: stack.project.clone(),
        stack_id: stack.id,
        stack_name: stack.name.clone(),
        sequence_id: desired.object.sequence_id,
        checksum: desired.object.checksum,
        parsed_digest: desired.object.parsed_digest,
        removal: desired.removal,
        withdrawn: desired.withdrawn,
        wave_wait_seconds: desired.object.wave_wait_seconds,
        rerun: rerun(stack, desired.object.sequence_id),
        schedule: desired.schedule,
        suspensions: stack.suspensions_on(agent).cloned().collect(),
        health_rules: stack.health_rules.as_ref().map(|rules| rules.checksum),
        drift: stack.drift,
        grant: desired.right.into_grant(),
        approvals: approvals(agent, stack, desired.object.sequence_id),
        published_at: desired.object.published_at,
        targeted_at: desired.targeted_at,
        released_at: desired.released_at,
    })
}

/// Returns the approvals for this agent and this object.
fn approvals(agent: &AgentFacts, stack: &StackFacts, sequence_id: SequenceId) -> Vec<Approval> {
    let given = stack.approvals.iter().filter(|one| one.is_for(agent.id));
    given.map(|one| &one.approval).filter(|approval| approval.sequence_id == sequence_id).cloned().collect()
}

/// Returns the Jobs that run again with this version.
fn rerun(stack: &StackFacts, sequence_id: SequenceId) -> Vec<JobRef> {
    let found = stack.reruns.iter().find(|rerun| rerun.sequence_id == sequence_id);
    found.map(|rerun| rerun.jobs.clone()).unwrap_or_default()
}

/// Encodes the envelope.
#[must_use]
pub fn encode(envelope: &Envelope) -> EncodedEnvelope {
    // Serialising plain structs with text keys cannot fail.
    let bytes = Bytes::from(serde_json::to_vec(envelope).expect("an envelope is plain data"));
    let etag = format!("\"{}\"", Checksum::of(&bytes));
    EncodedEnvelope { bytes, etag }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brokkr_api::agents::Why;
    use brokkr_api::envelope::Grant;
    use brokkr_api::{GrantId, StackId};

    use super::super::facts::{ExplicitTarget, SelectorTarget};
    use super::super::fixtures;
    use super::super::grants::{GrantFacts, ProjectGrants};
    use super::super::labels::Label;
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn agent() -> AgentFacts {
        let labels = [Label::new("env", "prod")].into_iter().collect();
        AgentFacts { labels, labels_changed_at: second(50), ..fixtures::agent() }
    }

    fn stack(name: &str, sequence: i64) -> StackFacts {
        let object = ObjectFacts {
            sequence_id: SequenceId(sequence),
            checksum: Checksum::of(name.as_bytes()),
            parsed_digest: Checksum::of(b"{}"),
            is_deletion_marker: false,
            keeps_resources: false,
            is_urgent: false,
            wave_wait_seconds: None,
            resources: 1,
            published_at: second(100),
        };
        let mut stack =
            StackFacts::new("default".into(), StackId::generate(), name.into()).with_base(Some(object));
        stack.grants = Arc::new(ProjectGrants::Unlimited);
        stack
    }

    fn explicitly(mut stack: StackFacts, agent: &AgentFacts, since: i64) -> StackFacts {
        stack.targets.push(ExplicitTarget { agent: agent.id, since: second(since) });
        stack
    }

    fn selecting(mut stack: StackFacts, selector: &str, since: i64) -> StackFacts {
        stack.selectors.push(SelectorTarget { selector: selector.parse().unwrap(), since: second(since) });
        stack
    }

    fn of(agent: &AgentFacts, stacks: &[StackFacts]) -> Vec<TargetStack> {
        envelope(InstallationId::generate(), agent, stacks, None).stacks
    }

    #[test]
    fn stacks_reach_an_agent_by_name_or_selector_and_are_ordered_by_sequence_id() {
        let agent = agent();
        let stacks = [
            selecting(stack("by-selector", 9), "env=prod", 1),
            explicitly(stack("by-name", 3), &agent, 1),
            selecting(stack("other", 4), "env=dev", 1),
            stack("untargeted", 5),
        ];
        let names: Vec<_> = of(&agent, &stacks).into_iter().map(|target| target.stack_name).collect();
        assert_eq!(names, ["by-name", "by-selector"]);
    }

    #[test]
    fn a7_an_inactive_agent_gets_nothing_not_even_removals() {
        let mut agent = agent();
        let stack = stack("held", 3);
        agent = agent.holding(vec![stack.id]);
        assert_eq!(of(&agent, std::slice::from_ref(&stack))[0].removal, Some(Removal::Untargeted));
        agent.status = AgentStatus::Inactive;
        assert_eq!(of(&agent, &[stack]), []);
    }

    #[test]
    fn e1_a_deleted_stack_is_a_removal_for_agents_that_hold_it_and_nothing_for_others() {
        let agent = agent();
        let mut deleted = explicitly(stack("gone", 7), &agent, 1);
        deleted.deleted = true;
        assert_eq!(of(&agent, std::slice::from_ref(&deleted)), []);
        let holder = agent.holding(vec![deleted.id]);
        let answer = of(&holder, &[deleted]);
        assert_eq!((answer[0].removal, answer[0].sequence_id), (Some(Removal::Deleted), SequenceId(7)));
    }

    #[test]
    fn targeting_again_cancels_a_removal() {
        let agent = agent();
        let stack = stack("web", 7);
        let agent = agent.holding(vec![stack.id]);
        assert_eq!(of(&agent, std::slice::from_ref(&stack))[0].removal, Some(Removal::Untargeted));
        assert_eq!(of(&agent, &[explicitly(stack, &agent, 1)])[0].removal, None);
    }

    #[test]
    fn targeted_at_is_the_earliest_reason_but_never_before_publishing() {
        let agent = agent();
        let early = explicitly(stack("early", 1), &agent, 1);
        assert_eq!(of(&agent, &[early])[0].targeted_at, second(100));
        let late = explicitly(stack("late", 2), &agent, 300);
        assert_eq!(of(&agent, &[late])[0].targeted_at, second(300));
        let both = selecting(explicitly(stack("both", 3), &agent, 300), "env", 200);
        assert_eq!(of(&agent, std::slice::from_ref(&both))[0].targeted_at, second(200));
        assert_eq!(reasons(&agent, &both)[0].why, Why::Explicit);
    }

    #[test]
    fn a_selector_counts_from_when_the_labels_began_to_match() {
        let mut agent = agent();
        agent.labels_changed_at = second(400);
        let stack = selecting(stack("web", 1), "env=prod", 200);
        assert_eq!(of(&agent, &[stack])[0].targeted_at, second(400));
    }

    #[test]
    fn the_tag_is_the_digest_of_the_bytes_and_the_order_of_input_does_not_matter() {
        let agent = agent();
        let installation = InstallationId::generate();
        let one = explicitly(stack("one", 1), &agent, 1);
        let two = explicitly(stack("two", 2), &agent, 1);
        let in_order = encode(&envelope(installation, &agent, [&one, &two], None));
        let shuffled = encode(&envelope(installation, &agent, [&two, &one, &two], None));
        assert_eq!(in_order, shuffled);
        assert_eq!(in_order.etag, format!("\"{}\"", Checksum::of(&in_order.bytes)));
    }

    fn granting(mut stack: StackFacts, grants: &[(&str, &str, &str)]) -> StackFacts {
        let grants = grants.iter().map(|(selector, namespace, account)| GrantFacts {
            id: GrantId::generate(),
            project: stack.project.clone(),
            selector: selector.parse().unwrap(),
            allows: Arc::new(Grant {
                namespaces: vec![(*namespace).to_owned()],
                kinds: vec!["*".to_owned()],
                account: Some((*account).to_owned()),
            }),
        });
        stack.grants = Arc::new(ProjectGrants::new(true, grants.collect()));
        stack
    }

    fn of_shop(agent: &AgentFacts, grants: &[(&str, &str, &str)]) -> StackFacts {
        let mut stack = explicitly(stack("web", 1), agent, 1);
        stack.project = "shop".into();
        granting(stack, grants)
    }

    #[test]
    fn a_stack_reaches_an_agent_only_inside_a_grant_of_its_project() {
        let agent = agent();
        assert_eq!(of(&agent, &[of_shop(&agent, &[])]), [], "no grant, no target");
        assert_eq!(of(&agent, &[of_shop(&agent, &[("env=dev", "a", "a/brokkr-a")])]), []);
        let granted = of(&agent, &[of_shop(&agent, &[("env", "a", "a/brokkr-a")])]);
        assert_eq!(granted[0].grant.as_ref().unwrap().namespaces, ["a"]);
        // `default` may do everything until it has a grant.
        let by_default = explicitly(stack("web", 1), &agent, 1);
        assert_eq!(of(&agent, std::slice::from_ref(&by_default))[0].grant, None);
        assert_eq!(of(&agent, &[granting(by_default, &[("env=dev", "a", "a/brokkr-a")])]), []);
    }

    #[test]
    fn a_withdrawn_grant_freezes_held_stacks_and_removes_nothing() {
        let agent = agent();
        let mut stack = of_shop(&agent, &[]);
        let holder = agent.holding(vec![stack.id]);
        for deleted in [false, true] {
            stack.deleted = deleted;
            let frozen = of(&holder, std::slice::from_ref(&stack));
            assert_eq!((frozen[0].removal, frozen[0].grant.clone()), (None, Some(Grant::default())));
        }
        let again = of(&holder, &[granting(stack, &[("*", "a", "a/brokkr-a")])]);
        assert_eq!(
            again[0].removal,
            Some(Removal::Deleted),
            "the pending removal happens once a grant allows it"
        );
    }

    #[test]
    fn grants_with_one_account_add_up_and_the_oldest_determines_the_account() {
        let agent = agent();
        let grants = [
            ("env=prod", "b", "x/brokkr-x"),
            ("*", "c", "y/brokkr-y"),
            ("env", "a", "x/brokkr-x"),
            ("env=dev", "d", "x/brokkr-x"),
        ];
        let target = &of(&agent, &[of_shop(&agent, &grants)])[0];
        let grant = target.grant.as_ref().unwrap();
        assert_eq!(grant.account.as_deref(), Some("x/brokkr-x"));
        assert_eq!(
            (&grant.namespaces[..], &grant.kinds[..]),
            (&["a".to_owned(), "b".to_owned()][..], &["*".to_owned()][..])
        );
    }
}
