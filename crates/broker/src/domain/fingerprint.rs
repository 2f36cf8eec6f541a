//! The facts of an agent or a stack as one line of text. The digest of many such lines, computed from the
//! index, is compared with the digest that the database computes from its rows (`store/fingerprints.rs`,
//! which has to write exactly the same lines).

use std::fmt::Write as _;

use brokkr_api::ids::Checksum;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::facts::{AgentFacts, StackFacts};

/// The digest of many lines: their number, and the XOR of their hashes. The order of the lines does not
/// matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    pub lines: i64,
    pub sum: i64,
}

impl Fingerprint {
    pub fn add(&mut self, line: &str) {
        let digest = Sha256::digest(line.as_bytes());
        let mut first = [0u8; 8];
        first.copy_from_slice(&digest[..8]);
        self.lines += 1;
        self.sum ^= i64::from_be_bytes(first);
    }
}

#[must_use]
pub fn agent_line(agent: &AgentFacts) -> String {
    let instance = agent.session.instance.map_or_else(|| "-".to_owned(), |instance| instance.to_string());
    let truth = |it: bool| if it { 't' } else { 'f' };
    let (duplicated, new_key) = (truth(agent.session.duplicated), truth(agent.new_key_wanted));
    let upgrade = agent.upgrade();
    let allowed = upgrade.allowed_since.map_or_else(|| "-".to_owned(), |since| micros(since).to_string());
    let reported = upgrade.reported.map_or_else(|| "-".to_owned(), |id| id.to_string());
    let ended = truth(upgrade.has_ended);
    format!(
        "{}|{}|{}|{}|{}|{}|{}|{instance}|{duplicated}|{new_key}|{allowed}|{reported}|{ended}|{}|{}",
        agent.id,
        agent.name,
        agent.status,
        labels(agent),
        micros(agent.labels_changed_at),
        Checksum(agent.public_key),
        agent.session.count,
        agent.holds_digest,
        agent.unconfirmed.len(),
    )
}

/// Formats labels as PostgreSQL prints jsonb: shorter keys first. Keys and values need no escaping.
fn labels(agent: &AgentFacts) -> String {
    let mut pairs: Vec<(&str, &str)> =
        agent.labels.iter().map(|label| (label.key(), label.value())).collect();
    pairs.sort_unstable_by_key(|(key, _)| (key.len(), *key));
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("\"{key}\": \"{value}\"")).collect();
    format!("{{{}}}", pairs.join(", "))
}

#[must_use]
pub fn stack_line(stack: &StackFacts) -> String {
    let base = stack.base.map_or_else(|| "-".to_owned(), |object| object.sequence_id.to_string());
    let releases = stack.releases.iter();
    let releases: Vec<String> =
        releases.map(|release| format!("{}@{}", release.object.sequence_id, release.revision)).collect();
    let widening = stack.widening().map(|widening| format!("{}@{}", widening.key, widening.release.revision));
    let (releases, widening) = (releases.join(","), widening.unwrap_or_default());
    let mut line = format!("{}|{}|{}|{base}|{releases}|{widening}|", stack.id, stack.project, stack.name);
    let targets = stack.targets.iter().map(|target| format!("{}@{}", target.agent, micros(target.since)));
    let mut selectors: Vec<(String, i64)> =
        stack.selectors.iter().map(|target| (target.selector.to_string(), micros(target.since))).collect();
    selectors.sort_unstable();
    let selectors = selectors.iter().map(|(selector, since)| format!("{selector}@{since}"));
    let (targets, selectors): (Vec<_>, Vec<_>) = (targets.collect(), selectors.collect());
    let mut suspensions: Vec<String> =
        stack.suspensions.iter().map(|suspension| suspension.suspended.id.to_string()).collect();
    suspensions.sort_unstable();
    let (targets, selectors, suspensions) = (targets.join(","), selectors.join(","), suspensions.join(","));
    // Writing to a string cannot fail.
    let rules = stack.health_rules.as_ref().map(|rules| rules.checksum.to_string()).unwrap_or_default();
    let (approvals, drift) = (stack.approvals.len(), stack.drift);
    let _ = write!(line, "{targets}|{selectors}|{approvals}|{suspensions}|{rules}|{drift}");
    line
}

fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}
