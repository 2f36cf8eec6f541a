//! Rollouts: listed, shown, and what people can do with them.

pub mod begin;
pub mod command;
pub mod decisions;
pub mod policies;
pub mod widen;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::SequenceId;
use brokkr_api::page::Page;
use brokkr_api::reason::Message;
use brokkr_api::rollouts::{CommandRollout, Rollout, RolloutFigures, RolloutState};
use brokkr_api::webhooks::WebhookEvent;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::domain::rollout::command::Command;
use crate::domain::webhooks::happening::{Happening, NamedStack};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{self, QueryParams, cursor};
use crate::http::rollouts::command::{UserCommand, not_possible};
use crate::http::stacks::{find_stack, lock_existing_stack};
use crate::http::write::{self, ResultStorage, Write};
use crate::state::Broker;
use crate::store::outbox::OutboxNotification;
use crate::store::rollouts::{
    ActiveRollout, rollout_contacts_on_conn, rollout_evidence_on_conn, rollout_fetch, rollout_list,
    rollout_lock_on_conn, rollout_store_on_conn,
};

/// Which rollouts to list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RolloutsQuery {
    /// Only those of this stack: name or id.
    pub stack: Option<String>,
    /// Only those that have not ended.
    #[serde(default)]
    pub active: bool,
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items; at most 500.
    pub limit: Option<u32>,
}

/// List rollouts, newest first.
#[utoipa::path(get, path = "/api/v1/rollouts", tag = "rollouts", params(RolloutsQuery),
    responses((status = 200, body = Page<Rollout>)))]
pub async fn list_rollouts(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<RolloutsQuery>,
) -> ApiResult<Json<Page<Rollout>>> {
    let project = caller.project();
    let stack = match &query.stack {
        Some(stack) => Some(find_stack(&broker, project, stack).await?.id),
        None => None,
    };
    let (below, limit) = (cursor(query.after.as_deref())?, paging::limit(query.limit));
    let found = rollout_list(&broker.pool, project, stack, query.active, below, limit).await?;
    Ok(Json(Page::cut(found, limit, |rollout| rollout.sequence_id.to_string())))
}

/// Get a rollout by the sequence id of its version.
#[utoipa::path(get, path = "/api/v1/rollouts/{sequence_id}", tag = "rollouts",
    params(("sequence_id" = i64, Path, description = "Sequence id")), responses((status = 200, body = Rollout)))]
pub async fn get_rollout(
    State(broker): BrokerState,
    caller: Caller,
    Path(sequence_id): Path<String>,
) -> ApiResult<Json<Rollout>> {
    let sequence_id: SequenceId = sequence_id.parse().map_err(|_| missing())?;
    let found = rollout_fetch(&broker.pool, caller.project(), sequence_id).await?;
    found.map(Json).ok_or_else(missing)
}

fn missing() -> ApiError {
    ApiError::not_found("rollout")
}

/// Pause, resume, promote, skip, approve, deny, stop or abort a rollout.
///
/// - `pause`: agents that have the version keep it, and no other agent gets it.
/// - `resume`: go on. After a stop, the bad agents so far are accepted.
/// - `promote`: begin the next wave now.
/// - `skip`: do not wait for the rest of the soak time, or for approvals; that needs the role of the gate.
/// - `approve`: approve the wave that waits for approvals. Needs the role of the gate.
/// - `deny`: stop the rollout at its gate. Needs the role of the gate.
/// - `stop`: withdraw the version. Agents that have begun it keep it; no other agent begins it.
/// - `abort`: like `stop`, but the rollout cannot be resumed.
#[utoipa::path(post, path = "/api/v1/rollouts/{sequence_id}/{command}", tag = "rollouts", request_body = CommandRollout,
    params(("sequence_id" = i64, Path, description = "Sequence id"),
           ("command" = String, Path, description = "`pause`, `resume`, `promote`, `skip`, `approve`, `deny`, `stop` or `abort`")),
    responses((status = 200, body = Rollout)))]
pub async fn command_rollout(
    State(broker): BrokerState,
    Path((sequence_id, command)): Path<(String, String)>,
    change: Change,
) -> ApiResult {
    let asked: CommandRollout = change.json_or_default()?;
    let sequence_id: SequenceId = sequence_id.parse().map_err(|_| missing())?;
    let token = change.caller()?.token()?;
    let asked = UserCommand::read(&command, asked, token)?;
    let project = change.caller()?.project();
    let shown = rollout_fetch(&broker.pool, project, sequence_id).await?.ok_or_else(missing)?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let stack = lock_existing_stack(&mut write, project, &shown.stack_id.to_string()).await?;
        let locked = rollout_lock_on_conn(write.conn(), &stack).await?;
        let Some(before) = locked.filter(|rollout| rollout.sequence_id == sequence_id) else {
            let ended = rollout_fetch(write.conn(), project, sequence_id).await?.ok_or_else(missing)?;
            return Err(not_possible(&ended.state.to_string()));
        };
        let mut after = asked.allowed(&mut write, project, &before.rollout, &shown.created_by).await?;
        let figures = figures(&broker, &mut write, &before).await?;
        let look = asked.carry_out(&mut after, figures, before.figures, (before.now, before.watched().1))?;
        write.audit_reason(asked.reason());
        rollout_store_on_conn(write.conn(), &before, &after, &look).await?;
        write.notify(project, OutboxNotification::Stack(stack.id)).await?;
        let was_gated = before.rollout.state == RolloutState::Gated;
        let event = if was_gated && after.state == RolloutState::Running {
            Some(WebhookEvent::RolloutAdvanced)
        } else {
            event(asked.command())
        };
        if let Some(event) = event {
            let named = NamedStack { id: stack.id, name: stack.name.clone() };
            let happening = Happening::of_stack(event, before.now, named, sequence_id);
            let happening = Happening { message: Message::new(asked.reason().trim()), ..happening };
            write.notify_webhooks(project, &happening).await?;
        }
        let rollout = rollout_fetch(write.conn(), project, sequence_id).await?.ok_or_else(missing)?;
        tracing::info!(stack_id = %stack.id, stack = stack.name, %sequence_id, state = %rollout.state, "rollout changed by a user");
        write.finish(StatusCode::OK, &rollout).await
    })
    .await
}

/// Returns the event that webhooks receive for a command.
fn event(command: &Command) -> Option<WebhookEvent> {
    match command {
        Command::Promote => Some(WebhookEvent::RolloutAdvanced),
        Command::Stop { .. } | Command::Abort { .. } | Command::Deny { .. } => {
            Some(WebhookEvent::RolloutStopped)
        }
        Command::Pause | Command::Resume | Command::Skip | Command::Approve { .. } => None,
    }
}

/// Returns what the agents count as now; if this replica is behind, what they counted as at the last look.
async fn figures(broker: &Broker, write: &mut Write, rollout: &ActiveRollout) -> ApiResult<RolloutFigures> {
    let contacts = rollout_contacts_on_conn(write.conn()).await?;
    let evidence = rollout_evidence_on_conn(write.conn(), rollout, &contacts).await?;
    let version = (rollout.sequence_id, rollout.revision);
    let snapshot = broker.index.snapshot();
    let wave = rollout.rollout.selector();
    let survey = snapshot.survey(rollout.stack, version, wave, &evidence, rollout.now);
    Ok(survey.map_or(rollout.figures, |survey| survey.figures))
}
