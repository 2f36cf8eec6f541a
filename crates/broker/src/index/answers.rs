//! Envelopes that were computed, kept until something concerns their agent.

use std::collections::HashMap;
use std::sync::Arc;

use brokkr_api::AgentId;

use super::Concerned;
use crate::domain::envelope::Answer;

/// Above this it starts over: forgetting costs a computation, never a wrong answer.
const MOST_BYTES: usize = 256 * 1024 * 1024;

#[derive(Debug, Default)]
pub struct Answers {
    kept: HashMap<AgentId, Arc<Answer>>,
    bytes: usize,
}

impl Answers {
    pub fn get(&self, agent: AgentId) -> Option<Arc<Answer>> {
        self.kept.get(&agent).cloned()
    }

    pub fn put(&mut self, agent: AgentId, answer: Arc<Answer>) {
        if self.bytes + answer.bytes.len() > MOST_BYTES {
            self.clear();
        }
        self.bytes += answer.bytes.len();
        if let Some(before) = self.kept.insert(agent, answer) {
            self.bytes -= before.bytes.len();
        }
    }

    pub fn forget(&mut self, concerned: &Concerned<'_>) {
        // Whichever are fewer are walked through.
        if concerned.len() > self.kept.len() {
            self.kept.retain(|agent, _| !concerned.contains(*agent));
            self.bytes = self.kept.values().map(|answer| answer.bytes.len()).sum();
            return;
        }
        for agent in concerned.iter() {
            if let Some(answer) = self.kept.remove(&agent) {
                self.bytes -= answer.bytes.len();
            }
        }
    }

    pub fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }
}
