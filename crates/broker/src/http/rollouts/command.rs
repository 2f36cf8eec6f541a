//! Commands of users to a rollout: of a version, or of an upgrade of agents.

use brokkr_api::ErrorCode;
use brokkr_api::rollouts::{CommandRollout, RolloutFigures, RolloutState};
use brokkr_api::tokens::WhoAmI;
use jiff::Timestamp;

use crate::domain::rollout::Rollout;
use crate::domain::rollout::command::Command;
use crate::error::{ApiError, ApiResult};
use crate::http::change::check_reason;
use crate::http::write::Write;
use crate::store::api_tokens::api_tokens_valid_on_conn;
use crate::store::rollouts::RolloutUpdate;

/// A command, and who gives it.
pub struct UserCommand<'a> {
    command: Command,
    reason: String,
    /// Only if the rollout is at this wave.
    wave: Option<u32>,
    token: &'a WhoAmI,
}

impl<'a> UserCommand<'a> {
    pub fn read(name: &str, asked: CommandRollout, token: &'a WhoAmI) -> ApiResult<Self> {
        let CommandRollout { reason, wave } = asked;
        Ok(Self { command: read_command(name, &reason, &token.name)?, reason, wave, token })
    }

    #[must_use]
    pub fn command(&self) -> &Command {
        &self.command
    }

    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Refuses what the gate of the wave does not allow, or what is for another wave. Returns the rollout with the approvals that count.
    pub async fn allowed(
        &self,
        write: &mut Write,
        project: &str,
        rollout: &Rollout,
        author: &str,
    ) -> ApiResult<Rollout> {
        check_gate(rollout, &self.command, self.token, author)?;
        let at = rollout.wave_number();
        if self.wave.is_some_and(|wave| wave != at) {
            return Err(not_possible(&format!("at wave {at}")));
        }
        let mut rollout = rollout.clone();
        if matches!(self.command, Command::Approve { .. }) {
            keep_valid_approvals(write, project, &mut rollout).await?;
        }
        Ok(rollout)
    }

    /// Carries the command out, and returns what to store with it. `last`: what the agents counted as at the last look; `watched`: the time
    /// of now, and since when the agents were watched.
    pub fn carry_out(
        &self,
        rollout: &mut Rollout,
        mut figures: RolloutFigures,
        last: RolloutFigures,
        (now, watched_since): (Timestamp, Timestamp),
    ) -> ApiResult<RolloutUpdate> {
        if rollout.state == RolloutState::Stopped {
            // Late agents count as late again only after a while; those that stopped the rollout are accepted by resuming it.
            figures.bad = figures.bad.max(last.bad);
        }
        let done = rollout.command(self.command.clone(), &figures);
        done.map_err(|error| not_possible(&error.state.to_string()))?;
        // While it was stopped, agents could not begin.
        let watched_since = if self.command == Command::Resume { now } else { watched_since };
        Ok(RolloutUpdate { at: now, figures, pending: None, watched_since })
    }
}

/// Forgets approvals of tokens that are no longer valid: a token that was revoked since may have been in the wrong hands.
async fn keep_valid_approvals(write: &mut Write, project: &str, rollout: &mut Rollout) -> ApiResult<()> {
    let Some(role) = rollout.open_gate().map(|(gate, _)| gate.role) else { return Ok(()) };
    let names = &mut rollout.gate.approved_by;
    let valid = api_tokens_valid_on_conn(write.conn(), project, names).await?;
    names.retain(|name| valid.iter().any(|(valid, of)| valid == name && of.includes(role)));
    Ok(())
}

/// Refuses what the gate of the wave does not allow this token.
fn check_gate(rollout: &Rollout, command: &Command, token: &WhoAmI, author: &str) -> ApiResult<()> {
    let is_about_gate = matches!(command, Command::Approve { .. } | Command::Deny { .. } | Command::Skip);
    let Some((gate, _)) = rollout.open_gate().filter(|_| is_about_gate) else { return Ok(()) };
    if !token.role.includes(gate.role) {
        return Err(forbidden(format!("this wave needs the approval of the role {}", gate.role)));
    }
    let is_passing = matches!(command, Command::Approve { .. } | Command::Skip);
    if gate.not_author && token.name == author && is_passing {
        return Err(forbidden("the token that submitted the version may not approve it".to_owned()));
    }
    Ok(())
}

fn forbidden(detail: String) -> ApiError {
    ApiError::new(ErrorCode::BRK1002, detail)
}

/// Refuses a command that the rollout cannot carry out now.
pub fn not_possible(state: &str) -> ApiError {
    ApiError::new(ErrorCode::BRK2023, format!("the rollout is {state}"))
}

fn read_command(command: &str, reason: &str, by: &str) -> ApiResult<Command> {
    if !reason.is_empty() {
        check_reason(reason)?;
    }
    let because = || check_reason(reason).map(ToOwned::to_owned);
    match command {
        "pause" => Ok(Command::Pause),
        "resume" => Ok(Command::Resume),
        // What leaves out a safeguard needs a reason.
        "promote" => because().map(|_| Command::Promote),
        "skip" => because().map(|_| Command::Skip),
        "approve" => Ok(Command::Approve { by: by.to_owned() }),
        "deny" => Ok(Command::Deny { by: by.to_owned(), reason: because()? }),
        "stop" => Ok(Command::Stop { reason: because()? }),
        "abort" => Ok(Command::Abort { reason: because()? }),
        _ => Err(ApiError::not_found("command")),
    }
}
