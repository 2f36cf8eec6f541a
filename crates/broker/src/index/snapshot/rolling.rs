//! How far the rollout of a stack is: its agents, judged by their reports and their presence.

use brokkr_api::agents::AgentStatus;
use brokkr_api::report::Transition;
use brokkr_api::{Selector, SequenceId, StackId};
use jiff::Timestamp;

use super::Snapshot;
use crate::domain::facts::AgentFacts;
use crate::domain::release::{Release, place};
use crate::domain::rollout::survey::{Evidence, Member, Survey};
use crate::domain::rollout::verdict::Contact;

impl Snapshot {
    /// Returns the stacks with a rollout that is open.
    #[must_use]
    pub fn rolling(&self) -> Vec<(String, StackId)> {
        let is_open = |id: &&StackId| {
            self.stacks.get(*id).and_then(|stack| stack.releases().last()).is_some_and(|release| release.open)
        };
        let stacks = self.rolling.iter().filter(is_open).filter_map(|id| self.stacks.get(id));
        stacks.map(|stack| (stack.project.clone(), stack.id)).collect()
    }

    /// Judges the agents of the stack for the wave with this selector. Returns none if this index does not know this version and
    /// revision of the rollout yet: then it may not know the targets either.
    #[must_use]
    pub fn survey(
        &self,
        stack: StackId,
        version: (SequenceId, i64),
        wave: Option<&Selector>,
        evidence: &Evidence<'_>,
        now: Timestamp,
    ) -> Option<Survey> {
        let stack = self.stacks.get(&stack)?;
        let is_known = |release: &&Release| (release.object.sequence_id, release.revision) == version;
        let release = stack.releases().last().filter(is_known)?;
        let mut survey = Survey::default();
        // Of all targets, because what selects each agent would take too long to find.
        let selectors = stack.selectors.iter().map(|target| target.since);
        let targeted =
            stack.targets.iter().map(|target| target.since).chain(selectors).max().unwrap_or_default();
        let is_deletion = release.object.is_deletion_marker;
        for agent in self.reached(stack).into_iter().filter(|agent| agent.status == AgentStatus::Active) {
            let report = evidence.reports.get(&agent.id);
            // An agent that does not have the stack has nothing to delete.
            if is_deletion && !agent.holds(stack.id) && report.is_none() {
                continue;
            }
            // It has removed the stack, and gets it again.
            let report = report.filter(|report| is_deletion || report.transition != Transition::Removed);
            let place = place(agent.id, release.seed);
            let member = Member {
                place,
                in_wave: wave.is_none_or(|selector| agent.matches(selector)),
                released_at: evidence.raises.released_at(place, |selector| agent.matches(selector)),
                contact: contact(agent, evidence, targeted),
                report: report.cloned(),
            };
            survey.add(&member, now);
        }
        Some(survey)
    }
}

/// Returns whether the agent is connected, and since when it could have begun the version.
fn contact(agent: &AgentFacts, evidence: &Evidence<'_>, targeted: Timestamp) -> Contact {
    match evidence.contacts.absent.get(&agent.id) {
        Some(contact) => *contact,
        None => {
            let returned = evidence.contacts.returned.get(&agent.id).copied();
            // Labels also change when an agent joins.
            let since = targeted.max(evidence.watched_since).max(agent.labels_changed_at);
            Contact::Present(returned.max(Some(since)))
        }
    }
}
