//! Commands: how a user changes the state of a rollout.

use brokkr_api::rollouts::{RolloutFigures, RolloutState, StopReason};

use super::{GateProgress, Rollout};

/// What a person can do with a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Release the version to no further agent.
    Pause,
    /// Go on. After a stop, the bad agents so far are accepted.
    Resume,
    /// Begin the next wave now.
    Promote,
    /// Do not wait for the rest of the soak time, or for approvals.
    Skip,
    /// Approve the wave that waits for it, with this token.
    Approve { by: String },
    /// Deny that approval: the rollout stops.
    Deny { by: String, reason: String },
    /// Withdraw the version: agents that have not begun it never begin it.
    Stop { reason: String },
    /// Like stop, but the rollout cannot be resumed.
    Abort { reason: String },
}

/// The command is not possible in the state of the rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rollout is {state}")]
pub struct NotPossible {
    pub state: RolloutState,
}

impl Rollout {
    /// Carries out a command. `figures` are those of now.
    pub fn command(&mut self, command: Command, figures: &RolloutFigures) -> Result<(), NotPossible> {
        use RolloutState::{Aborted, Gated, Paused, Running, Soaking, Stopped};
        let is_last = self.later_waves().is_empty();
        match (command, self.state) {
            (Command::Pause, Running | Soaking | Gated) => self.state = Paused,
            (Command::Resume, Paused) => self.state = Running,
            (Command::Resume, Stopped) => {
                (self.state, self.stop_reason, self.gate) = (Running, None, GateProgress::default());
                let allowed = self.allowed_bad(figures.released) - self.accepted_bad;
                self.accepted_bad = figures.bad.saturating_sub(allowed).max(self.accepted_bad);
                self.accepted_excused = figures.excused.max(self.accepted_excused);
            }
            // A gate has to be answered: no way leads around it.
            (Command::Promote, Running | Soaking) if !is_last && self.open_gate().is_none() => {
                // Further waves that add no agent do not soak either.
                let soaked = self.policy.soak(figures.members);
                (self.state, self.wave, self.soaked) = (Running, self.wave + 1, soaked);
                self.gate = GateProgress::default();
            }
            (Command::Skip, Soaking) => self.soaked = self.policy.soak(figures.members),
            (Command::Skip, Gated) => (self.state, self.gate.is_skipped) = (Running, true),
            (Command::Approve { by }, Gated) => {
                self.gate.approved_by.insert(by);
                if self.open_gate().is_none() {
                    self.state = Running;
                }
            }
            (Command::Deny { by, reason }, Gated) => {
                (self.state, self.stop_reason) = (Stopped, Some(StopReason::Denied { by, reason }));
            }
            (Command::Stop { reason }, Running | Soaking | Gated | Paused) => {
                (self.state, self.stop_reason) = (Stopped, Some(StopReason::Person { reason }));
            }
            (Command::Abort { reason }, Running | Soaking | Gated | Paused | Stopped) => {
                (self.state, self.stop_reason) = (Aborted, Some(StopReason::Person { reason }));
            }
            (_, state) => return Err(NotPossible { state }),
        }
        Ok(())
    }
}
