//! Computed envelopes, kept until a change affects their agent.
//!
//! Two generations approximate the least recently used order: a hit moves an envelope to the young one. When that is full,
//! it becomes the old one, and what was in the old one until then, and was not used since, is dropped. So a fleet that does
//! not fit loses its least used envelopes, and never all of them at once.

use std::collections::HashMap;
use std::sync::Arc;

use brokkr_api::AgentId;

use super::Affected;
use crate::domain::envelope::EncodedEnvelope;

/// The most bytes of one generation.
const MAX_BYTES: usize = 128 * 1024 * 1024;

#[derive(Debug)]
pub struct EnvelopeCache {
    young: Generation,
    old: Generation,
    max_bytes: usize,
}

impl Default for EnvelopeCache {
    fn default() -> Self {
        Self::new(MAX_BYTES)
    }
}

#[derive(Debug, Default)]
struct Generation {
    by_agent: HashMap<AgentId, Arc<EncodedEnvelope>>,
    bytes: usize,
}

impl Generation {
    fn insert(&mut self, agent: AgentId, envelope: Arc<EncodedEnvelope>) {
        self.bytes += envelope.bytes.len();
        if let Some(before) = self.by_agent.insert(agent, envelope) {
            self.bytes -= before.bytes.len();
        }
    }

    fn remove(&mut self, agent: AgentId) -> Option<Arc<EncodedEnvelope>> {
        let removed = self.by_agent.remove(&agent)?;
        self.bytes -= removed.bytes.len();
        Some(removed)
    }

    fn forget(&mut self, affected: &Affected<'_>) {
        // Iterates over the smaller set.
        if affected.len() > self.by_agent.len() {
            self.by_agent.retain(|agent, _| !affected.contains(*agent));
            self.bytes = self.by_agent.values().map(|envelope| envelope.bytes.len()).sum();
            return;
        }
        for agent in affected.iter() {
            self.remove(agent);
        }
    }
}

impl EnvelopeCache {
    fn new(max_bytes: usize) -> Self {
        Self { young: Generation::default(), old: Generation::default(), max_bytes }
    }

    pub fn get(&mut self, agent: AgentId) -> Option<Arc<EncodedEnvelope>> {
        if let Some(known) = self.young.by_agent.get(&agent) {
            return Some(Arc::clone(known));
        }
        let known = self.old.remove(agent)?;
        self.put(agent, Arc::clone(&known));
        Some(known)
    }

    pub fn put(&mut self, agent: AgentId, envelope: Arc<EncodedEnvelope>) {
        if self.young.bytes + envelope.bytes.len() > self.max_bytes {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(agent, envelope);
    }

    pub fn forget(&mut self, affected: &Affected<'_>) {
        self.young.forget(affected);
        self.old.forget(affected);
    }

    /// Removes the envelopes of agents that no longer exist.
    pub fn forget_deleted(&mut self, agents: &[AgentId]) {
        for agent in agents {
            self.young.remove(*agent);
            self.old.remove(*agent);
        }
    }

    pub fn clear(&mut self) {
        (self.young, self.old) = (Generation::default(), Generation::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(bytes: usize) -> Arc<EncodedEnvelope> {
        Arc::new(EncodedEnvelope { bytes: vec![0; bytes].into(), etag: String::new() })
    }

    #[test]
    fn a_full_cache_drops_the_envelopes_that_were_not_used_and_keeps_the_others() {
        let agents: Vec<AgentId> = (0..30).map(|_| AgentId::generate()).collect();
        let mut cache = EnvelopeCache::new(1000);
        // One agent is served all the time, the others once.
        for agent in &agents {
            cache.put(*agent, encoded(100));
            assert!(cache.get(agents[0]).is_some(), "it is in use");
            assert!(cache.young.bytes + cache.old.bytes <= 2000);
        }
        let is_kept = |agent: &&AgentId| {
            cache.young.by_agent.contains_key(*agent) || cache.old.by_agent.contains_key(*agent)
        };
        let kept = agents.iter().filter(is_kept).count();
        assert!((10..=20).contains(&kept), "{kept}");
        assert!(agents.iter().rev().take(5).all(|agent| is_kept(&agent)), "the newest ones are kept");
    }

    #[test]
    fn a_new_envelope_replaces_the_one_of_either_generation() {
        let (agent, other) = (AgentId::generate(), AgentId::generate());
        let mut cache = EnvelopeCache::new(1000);
        cache.put(agent, encoded(600));
        cache.put(other, encoded(600));
        assert_eq!((cache.young.bytes, cache.old.bytes), (600, 600));
        cache.put(agent, encoded(300));
        assert_eq!(cache.get(agent).map(|known| known.bytes.len()), Some(300));
        cache.clear();
        assert_eq!((cache.young.bytes, cache.old.bytes), (0, 0));
        assert!(cache.get(agent).is_none() && cache.get(other).is_none());
    }
}
