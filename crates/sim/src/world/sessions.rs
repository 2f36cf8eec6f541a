//! Runs of the agent, their counts, and the broker's judgement of them.

use jiff::SignedDuration;

use super::World;
use crate::run::Run;

/// The session counts that survive a run.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The count in the ConfigMap in the agent's namespace; none if a user deleted it.
    pub count: Option<i64>,
    /// The highest count that the broker has seen.
    pub known_to_broker: i64,
}

impl Memory {
    pub(super) fn first() -> Self {
        Self { count: Some(1), known_to_broker: 1 }
    }

    /// Returns the count of a new run: above that of every earlier run that it knows of, as in the agent's `run.rs`.
    fn next_count(&mut self, recorded: Option<i64>) -> i64 {
        let count = self.count.max(recorded).unwrap_or_default() + 1;
        self.count = Some(count);
        count
    }
}

impl World {
    /// Kills the process and starts it again: it knows the records in the cluster, and nothing else.
    pub fn crash(&mut self) {
        self.note(|| "— the agent dies —".to_owned());
        self.start();
        if self.broker.away {
            let now = self.agent_now();
            self.run.state.continue_without_broker(now);
        } else {
            self.open_session();
        }
    }

    fn start(&mut self) {
        let recorded = self.records.all().map(|record| record.session).max();
        let lacks_stored_state = self.memory.count.is_none();
        let session = self.memory.next_count(recorded);
        self.run = Run::start(self.agent, session, self.records.load(self.agent));
        self.run.lacks_stored_state = lacks_stored_state;
        self.broker.changed = true;
    }

    /// Restarts the agent with a clock that differs from that of the earlier run.
    pub fn restart(&mut self, clock_step: SignedDuration) {
        self.clock_step += clock_step;
        self.crash();
    }

    pub fn broker_returns(&mut self) {
        if std::mem::take(&mut self.broker.away) {
            self.open_session();
        }
    }

    /// Opens the session at the broker. Only the run with the highest count may write. A run whose stored state was lost
    /// stores the broker's count, and starts again above it.
    fn open_session(&mut self) {
        let known = self.memory.known_to_broker;
        if self.run.session < known && self.run.lacks_stored_state {
            self.memory.count = Some(known);
            self.start();
        }
        self.run.is_superseded = self.run.session < known;
        self.memory.known_to_broker = self.run.session.max(known);
    }
}
