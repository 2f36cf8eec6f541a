//! Problems of an agent itself, whatever the stack.

use brokkr_api::agents::AgentStatus;
use brokkr_api::why::{Broken, Cause, Hop, NextCommand, Presence, Reach};
use jiff::Timestamp;

use super::super::facts::AgentFacts;
use super::advice::{checked, in_cluster_of};

/// Seconds after which a refusal is ignored, because its cause may have been fixed since.
const RECENT: i64 = 600;

/// When an agent last polled or was refused. The index does not contain this.
#[derive(Clone, Debug)]
pub struct AgentContact {
    pub presence: Presence,
    pub last_seen: Option<Timestamp>,
    /// Its polling interval.
    pub poll_seconds: u32,
    /// The last refused request in its name.
    pub refused: Option<Refused>,
    /// Why the installation is on hold, if it is.
    pub hold: Option<String>,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub at: Timestamp,
    pub because: String,
}

impl AgentContact {
    /// Returns the refusal if it explains missed polls. Any process can use the agent's name, so a refusal
    /// counts only if the agent itself had already missed a poll at that time.
    fn refused_instead(&self) -> Option<&Refused> {
        let poll = i64::from(self.poll_seconds);
        let missed = |refused: &&Refused| {
            self.last_seen.is_none_or(|seen| refused.at.duration_since(seen).as_secs() > poll)
        };
        self.refused_lately().filter(missed)
    }

    pub(super) fn refused_lately(&self) -> Option<&Refused> {
        self.refused.as_ref().filter(|refused| self.now.duration_since(refused.at).as_secs() < RECENT)
    }

    /// Returns a text such as `last seen 12 s ago`.
    pub(super) fn last(&self) -> String {
        self.last_seen
            .map_or_else(|| "never seen".to_owned(), |at| format!("last seen {} ago", self.since(at)))
    }

    pub(super) fn since(&self, at: Timestamp) -> String {
        let seconds = self.now.duration_since(at).as_secs().max(0);
        match seconds {
            0..120 => format!("{seconds} s"),
            120..7200 => format!("{} min", seconds / 60),
            7200..172_800 => format!("{} h", seconds / 3600),
            _ => format!("{} days", seconds / 86_400),
        }
    }
}

/// Returns what keeps the agent from receiving its target state or from reporting.
#[must_use]
pub fn agent_trouble(agent: &AgentFacts, seen: &AgentContact) -> Option<Broken> {
    let name = &agent.name;
    let broken = |cause, message: String, next: &str, command: Option<NextCommand>| {
        Some(Broken { hop: Hop::Fetched, cause, message: message.into(), next: next.to_owned(), command })
    };
    if agent.status == AgentStatus::Inactive {
        let message = format!("the agent {name} is INACTIVE and gets no deployment objects");
        let line = format!("brokkr agent resume {name}");
        let command = checked(line, Reach::Agent, "whether the reason for pausing it is gone");
        return broken(Cause::AgentInactive, message, "resume the agent", Some(command));
    }
    if agent.session.duplicated {
        let message = format!("two processes use the identity of {name}; neither may write");
        let next = "find the second process; a cloned cluster needs its own join token";
        return broken(Cause::SessionDuplicated, message, next, None);
    }
    if let Some(refused) = seen.refused_instead() {
        let message = format!("requests of the agent {name} are refused: {}", refused.because);
        let next = "give the agent a new key; it keeps its name, labels and targets";
        let line = format!("brokkr agent join {name} --rejoin");
        let command = checked(line, Reach::Agent, &in_cluster_of(name));
        return broken(Cause::AgentRefused, message, next, Some(command));
    }
    let look = "check the agent in its cluster (kubectl get pods -A -l app.kubernetes.io/name=brokkr-agent), and whether \
                the broker is reachable from there";
    match seen.presence {
        Presence::Never => {
            let message = format!("the agent {name} has never polled");
            broken(Cause::AgentNeverSeen, message, look, None)
        }
        Presence::Silent => {
            let message = format!("the agent {name} is silent; it was {}", seen.last());
            broken(Cause::AgentSilent, message, look, None)
        }
        Presence::Late => {
            let message = format!("the agent {name} is late; it was {}", seen.last());
            broken(Cause::AgentLate, message, "wait; if it stays late, check the agent", None)
        }
        Presence::Fresh => None,
    }
}
