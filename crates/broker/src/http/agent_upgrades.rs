//! Upgrades of agents: begun, shown, and what admins can do with them.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::agents::AgentStatus;
use brokkr_api::page::{Page, Sort};
use brokkr_api::rollouts::{CommandRollout, RolloutFigures};
use brokkr_api::upgrades::{AgentUpgrade, AgentUpgradeStatus, NewAgentUpgrade};
use brokkr_api::{AgentId, ErrorCode, UpgradeId};
use http::StatusCode;

use crate::access::Caller;
use crate::domain::facts::AgentFacts;
use crate::domain::upgrades::{seed, wanted};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::rollouts::command::{UserCommand, not_possible};
use crate::http::write::{self, ResultStorage, Write};
use crate::index::AgentCursor;
use crate::state::Broker;
use crate::store::agent_upgrades::reports::agent_upgrade_statuses;
use crate::store::agent_upgrades::{
    ActiveUpgrade, agent_upgrade_evidence_on_conn, agent_upgrade_fetch, agent_upgrade_insert_on_conn,
    agent_upgrade_list, agent_upgrade_lock_on_conn, agent_upgrade_store_on_conn, agent_upgrades_lock_on_conn,
    agent_upgrades_supersede_on_conn, facts_of_upgrade,
};
use crate::store::outbox::OutboxNotification;
use crate::store::rollout_policies::rollout_policies_fetch;
use crate::store::rollouts::rollout_contacts_on_conn;

fn missing() -> ApiError {
    ApiError::not_found("upgrade")
}

fn read_id(id: &str) -> ApiResult<UpgradeId> {
    id.parse().map_err(|_| missing())
}

/// Offer an image to agents, in waves.
///
/// Only agents whose owners allow it get the offer; all others are owed it. The version has three numbers, such as 1.2.3. Each agent
/// replaces itself, and goes back to its image by itself if the new one does not work. An upgrade takes the place of every earlier one
/// that has not ended and may be for the same agents. Maintenance windows and freezes of the installation hold; those of projects do not.
#[utoipa::path(post, path = "/api/v1/agent-upgrades", tag = "agent upgrades", request_body = NewAgentUpgrade,
    responses((status = 201, body = AgentUpgrade)))]
pub async fn begin_agent_upgrade(State(broker): BrokerState, change: Change) -> ApiResult {
    let new: NewAgentUpgrade = change.json()?;
    wanted::check(&new).map_err(ApiError::invalid_request)?;
    let (project, token) = (change.caller()?.project(), change.caller()?.token()?);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let policies = rollout_policies_fetch(write.conn(), project, None).await?;
        let policy = wanted::policy(&new.policy, &policies.installation)
            .ok_or_else(|| ApiError::new(ErrorCode::BRK9001, "an upgrade has no policy"))?;
        let (active, completed) = agent_upgrades_lock_on_conn(write.conn()).await?;
        let overlaps = active
            .iter()
            .filter(|other| wanted::may_overlap(new.selector.as_ref(), other.selector.as_ref()))
            .map(|other| other.id);
        let superseded: Vec<UpgradeId> = overlaps.collect();
        agent_upgrades_supersede_on_conn(write.conn(), &superseded).await?;
        let seed = seed(completed);
        let id = agent_upgrade_insert_on_conn(write.conn(), &new, &policy, seed, &token.name).await?;
        write.notify(project, OutboxNotification::AgentUpgrades).await?;
        let upgrade = agent_upgrade_fetch(write.conn(), id).await?.ok_or_else(missing)?;
        tracing::info!(upgrade = %id, image = new.image, version = new.version, ?superseded, "upgrade of agents begun");
        write.finish(StatusCode::CREATED, &upgrade).await
    })
    .await
}

/// List the upgrades of agents, newest first.
#[utoipa::path(get, path = "/api/v1/agent-upgrades", tag = "agent upgrades", params(Paging),
    responses((status = 200, body = Page<AgentUpgrade>)))]
pub async fn list_agent_upgrades(
    State(broker): BrokerState,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<AgentUpgrade>>> {
    let (below, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let found = agent_upgrade_list(&broker.pool, below, limit).await?;
    Ok(Json(Page::cut(found, limit, |upgrade| upgrade.id.to_string())))
}

/// Get an upgrade of agents.
#[utoipa::path(get, path = "/api/v1/agent-upgrades/{upgrade}", tag = "agent upgrades",
    params(("upgrade" = i64, Path, description = "Id")), responses((status = 200, body = AgentUpgrade)))]
pub async fn get_agent_upgrade(
    State(broker): BrokerState,
    Path(upgrade): Path<String>,
) -> ApiResult<Json<AgentUpgrade>> {
    let found = agent_upgrade_fetch(&broker.pool, read_id(&upgrade)?).await?;
    found.map(Json).ok_or_else(missing)
}

/// List how far the agents of an upgrade are, by name.
#[utoipa::path(get, path = "/api/v1/agent-upgrades/{upgrade}/agents", tag = "agent upgrades",
    params(("upgrade" = i64, Path, description = "Id"), Paging),
    responses((status = 200, body = Page<AgentUpgradeStatus>)))]
pub async fn list_upgraded_agents(
    State(broker): BrokerState,
    caller: Caller,
    Path(upgrade): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<AgentUpgradeStatus>>> {
    broker.catch_up(&caller, None).await?;
    let (id, limit) = (read_id(&upgrade)?, paging.limit());
    let facts = facts_of_upgrade(&broker.pool, id).await?.ok_or_else(missing)?;
    let after = paging.after.map(AgentCursor::Name);
    let (ids, released): (Vec<AgentId>, Vec<AgentId>) = {
        let snapshot = broker.index.snapshot();
        let members = snapshot.upgrade_members(facts.selector.as_ref());
        let page = snapshot.page(&members, Sort::Name, after.as_ref(), limit);
        let is_released = |agent: &&AgentFacts| {
            agent.status == AgentStatus::Active
                && agent.upgrade().allowed_since.is_some()
                && snapshot.is_reached_by(&facts, agent)
        };
        let released = page.iter().copied().filter(is_released).map(|agent| agent.id).collect();
        (page.iter().map(|agent| agent.id).collect(), released)
    };
    let statuses = agent_upgrade_statuses(&broker.pool, id, &ids).await?;
    let shown = statuses
        .into_iter()
        .map(|(agent, status)| AgentUpgradeStatus { released: released.contains(&agent), ..status });
    Ok(Json(Page::cut(shown.collect(), limit, |status: &AgentUpgradeStatus| status.agent.clone())))
}

/// Pause, resume, promote, skip, approve, deny, stop or abort an upgrade of agents.
///
/// As for the rollout of a version: see `/rollouts/{sequence_id}/{command}`. Agents that have begun go on; while the upgrade is paused or
/// stopped, no other agent begins.
#[utoipa::path(post, path = "/api/v1/agent-upgrades/{upgrade}/{command}", tag = "agent upgrades",
    request_body = CommandRollout,
    params(("upgrade" = i64, Path, description = "Id"),
           ("command" = String, Path, description = "`pause`, `resume`, `promote`, `skip`, `approve`, `deny`, `stop` or `abort`")),
    responses((status = 200, body = AgentUpgrade)))]
pub async fn command_agent_upgrade(
    State(broker): BrokerState,
    Path((upgrade, command)): Path<(String, String)>,
    change: Change,
) -> ApiResult {
    let asked: CommandRollout = change.json_or_default()?;
    let id = read_id(&upgrade)?;
    let (project, token) = (change.caller()?.project(), change.caller()?.token()?);
    let asked = UserCommand::read(&command, asked, token)?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let Some(before) = agent_upgrade_lock_on_conn(write.conn(), id).await? else {
            let ended = agent_upgrade_fetch(write.conn(), id).await?.ok_or_else(missing)?;
            return Err(not_possible(&ended.state.to_string()));
        };
        let mut after = asked.allowed(&mut write, project, &before.rollout, &before.created_by).await?;
        let figures = figures(&broker, &mut write, &before).await?;
        let look = asked.carry_out(&mut after, figures, before.figures, (before.now, before.watched().1))?;
        write.audit_reason(asked.reason());
        agent_upgrade_store_on_conn(write.conn(), &before, &after, &look).await?;
        write.notify(project, OutboxNotification::AgentUpgrades).await?;
        let upgrade = agent_upgrade_fetch(write.conn(), id).await?.ok_or_else(missing)?;
        tracing::info!(upgrade = %id, state = %upgrade.state, "upgrade of agents changed by a user");
        write.finish(StatusCode::OK, &upgrade).await
    })
    .await
}

/// Returns what the agents count as now; if this replica is behind, what they counted as at the last look.
async fn figures(broker: &Broker, write: &mut Write, upgrade: &ActiveUpgrade) -> ApiResult<RolloutFigures> {
    let contacts = rollout_contacts_on_conn(write.conn()).await?;
    let evidence = agent_upgrade_evidence_on_conn(write.conn(), upgrade, &contacts).await?;
    let snapshot = broker.index.snapshot();
    let version = (upgrade.id, upgrade.revision);
    let survey = snapshot.survey_upgrade(version, upgrade.rollout.selector(), &evidence, upgrade.now);
    Ok(survey.map_or(upgrade.figures, |survey| survey.figures))
}
