//! Computed envelopes, kept until a change affects their agent.

use std::collections::HashMap;
use std::sync::Arc;

use brokkr_api::AgentId;

use super::Affected;
use crate::domain::envelope::EncodedEnvelope;

/// Above this, the cache is cleared.
const MAX_BYTES: usize = 256 * 1024 * 1024;

#[derive(Debug, Default)]
pub struct EnvelopeCache {
    by_agent: HashMap<AgentId, Arc<EncodedEnvelope>>,
    bytes: usize,
}

impl EnvelopeCache {
    pub fn get(&self, agent: AgentId) -> Option<Arc<EncodedEnvelope>> {
        self.by_agent.get(&agent).cloned()
    }

    pub fn put(&mut self, agent: AgentId, envelope: Arc<EncodedEnvelope>) {
        if self.bytes + envelope.bytes.len() > MAX_BYTES {
            self.clear();
        }
        self.bytes += envelope.bytes.len();
        if let Some(before) = self.by_agent.insert(agent, envelope) {
            self.bytes -= before.bytes.len();
        }
    }

    pub fn forget(&mut self, affected: &Affected<'_>) {
        // Iterates over the smaller set.
        if affected.len() > self.by_agent.len() {
            self.by_agent.retain(|agent, _| !affected.contains(*agent));
            self.bytes = self.by_agent.values().map(|envelope| envelope.bytes.len()).sum();
            return;
        }
        for agent in affected.iter() {
            if let Some(envelope) = self.by_agent.remove(&agent) {
                self.bytes -= envelope.bytes.len();
            }
        }
    }

    /// Removes the envelopes of agents that no longer exist.
    pub fn forget_deleted(&mut self, agents: &[AgentId]) {
        for agent in agents {
            if let Some(envelope) = self.by_agent.remove(agent) {
                self.bytes -= envelope.bytes.len();
            }
        }
    }

    pub fn clear(&mut self) {
        self.by_agent.clear();
        self.bytes = 0;
    }
}
