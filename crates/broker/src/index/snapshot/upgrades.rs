//! Which agents are offered an upgrade, and how far its rollout is.

#[cfg(test)]
mod tests;

use brokkr_api::windows::Opening;
use brokkr_api::{Selector, UpgradeId};
use jiff::Timestamp;
use roaring::RoaringBitmap;

use super::Snapshot;
use super::rolling::contact;
use crate::domain::facts::AgentFacts;
use crate::domain::release::{only_mark, place, place_of};
use crate::domain::rollout::survey::{Extent, Member, Survey};
use crate::domain::rollout::verdict::Contact;
use crate::domain::upgrades::report::{ReportedStep, UpgradeEvidence, version_report};
use crate::domain::upgrades::{UpgradeFacts, offered, opening, wanted};

impl Snapshot {
    /// Returns the upgrade that the agent should be asked to fetch, whether or not it may begin it now.
    pub fn wanted_upgrade(&self, agent: &AgentFacts) -> Option<&UpgradeFacts> {
        if self.upgrades.is_empty() {
            return None;
        }
        wanted(agent, &self.upgrades, &self.windows)
    }

    /// Returns the upgrade that the agent should have, and has not ended.
    pub fn offered_upgrade(&self, agent: &AgentFacts) -> Option<&UpgradeFacts> {
        offered(agent, &self.upgrades, &self.windows)
    }

    /// Returns whether the agent may begin an upgrade now.
    pub fn may_upgrade_at(&self, agent: &AgentFacts, now: Timestamp) -> bool {
        matches!(opening(agent, &self.windows, now), Opening::Open { .. })
    }

    /// Returns whether this upgrade is offered to the agent, if that allows it.
    pub fn is_reached_by(&self, upgrade: &UpgradeFacts, agent: &AgentFacts) -> bool {
        upgrade.reaches(agent, &self.windows)
    }

    /// Returns the upgrades with steps ahead.
    #[must_use]
    pub fn rolling_upgrades(&self) -> Vec<UpgradeId> {
        self.upgrades.iter().filter(|upgrade| upgrade.is_rolling()).map(|upgrade| upgrade.id).collect()
    }

    /// Returns the active agents that an upgrade with this selector is for.
    #[must_use]
    pub fn upgrade_members(&self, selector: Option<&Selector>) -> RoaringBitmap {
        match selector {
            Some(selector) => self.select(selector) & &self.active,
            None => self.active.clone(),
        }
    }

    /// Replaces all upgrades, and returns the agents that are asked to fetch another one.
    pub(super) fn put_upgrades(&mut self, upgrades: Vec<UpgradeFacts>) -> RoaringBitmap {
        if self.upgrades == upgrades {
            return RoaringBitmap::new();
        }
        let before = std::mem::replace(&mut self.upgrades, upgrades);
        let mut asked = &self.upgradable & &self.active;
        asked.retain(|slot| {
            let agent = self.at(slot);
            let now = wanted(agent, &self.upgrades, &self.windows).map(|upgrade| upgrade.id);
            now.is_some() && now != wanted(agent, &before, &self.windows).map(|upgrade| upgrade.id)
        });
        asked
    }

    /// Judges the agents of an upgrade for the wave with this selector. Returns none if this index does not know this revision of its
    /// rollout yet.
    #[must_use]
    pub fn survey_upgrade(
        &self,
        (id, revision): (UpgradeId, i64),
        wave: Option<&Selector>,
        evidence: &UpgradeEvidence<'_>,
        now: Timestamp,
    ) -> Option<Survey> {
        let is_it = |upgrade: &&UpgradeFacts| upgrade.id == id && upgrade.revision == revision;
        let upgrade = self.upgrades.iter().find(is_it)?;
        let mut survey = Survey::default();
        let members = self.upgrade_members(upgrade.selector.as_ref());
        // As for stacks: most agents of a large fleet are connected and wait, and only their places matter.
        let is_plain = wave.is_none() && self.windows.is_empty() && upgrade.windows.is_empty();
        let mark = only_mark(&upgrade.clauses).filter(|_| is_plain).unwrap_or(u64::MAX);
        let known = evidence.contacts.absent.keys().chain(evidence.reports.keys());
        let known: RoaringBitmap = known.filter_map(|agent| self.slot(*agent)).collect();
        let plain = &self.upgradable - known;
        for slot in &members {
            match place_of(self.random[slot as usize], upgrade.seed) {
                place if place > mark && plain.contains(slot) => survey.add_candidate(place),
                _ => survey.add(&self.upgrade_member(self.at(slot), upgrade, wave, evidence, now), now),
            }
        }
        Some(survey)
    }

    fn upgrade_member(
        &self,
        agent: &AgentFacts,
        upgrade: &UpgradeFacts,
        wave: Option<&Selector>,
        evidence: &UpgradeEvidence<'_>,
        now: Timestamp,
    ) -> Member {
        let allowed_since = agent.upgrade().allowed_since;
        let (place, lanes) = (place(agent.id, upgrade.seed), upgrade.lanes(agent, &self.windows));
        let opening = opening(agent, &self.windows, now);
        let able_since = allowed_since.unwrap_or_default().max(evidence.watched_since);
        let contact = contact(agent, evidence.contacts, able_since, opening);
        let reported = evidence.reports.get(&agent.id);
        // What a silent agent had says nothing.
        let has = evidence.at_version.contains(&agent.id) && !matches!(contact, Contact::Silent(_));
        let report = version_report(reported, &upgrade.version, has);
        // A new process announces that it allows upgrades only when it has completed this one.
        let is_held = reported.map_or(allowed_since.is_none(), ReportedStep::needs_owner);
        let released_at = evidence.raises.released_at(place, lanes, |selector| agent.matches(selector));
        Member {
            place,
            in_wave: wave.is_none_or(|selector| agent.matches(selector)),
            lanes,
            opening,
            // It gets the upgrade when its owner allows it.
            suspended: is_held.then_some(Extent::Stack),
            released_at: released_at.or_else(|| reported.map(|report| report.received_at)),
            contact,
            report,
        }
    }
}
