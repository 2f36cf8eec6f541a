//! Upgrades, as agents see them: what this agent is offered, and how far it is.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::AgentId;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::upgrades::{LONGEST_MESSAGE, UpgradeOffer, UpgradeReason, UpgradeReport};
use jiff::Timestamp;

use crate::domain::upgrades::UpgradeFacts;
use crate::domain::upgrades::wanted::is_version;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::agent_facts;
use crate::http::change::Change;
use crate::http::write::{self, ResultStorage};
use crate::state::Broker;
use crate::store::agent_upgrades::facts_of_upgrade;
use crate::store::agent_upgrades::reports::{
    agent_upgrade_mark_on_conn, agent_upgrade_report_on_conn, agent_upgrade_step_on_conn,
};
use crate::store::agents::agent_lock_on_conn;
use crate::store::outbox::OutboxNotification;

fn missing() -> ApiError {
    ApiError::not_found("upgrade")
}

/// Get the upgrade that an agent is offered.
///
/// 404 if there is none, it was taken back, the agent has ended it, or the agent may not begin anything now. The request opens no
/// session, and does not count as presence.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/upgrade", tag = "agents",
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = UpgradeOffer)))]
pub async fn agent_upgrade(
    State(broker): BrokerState,
    Path(agent): Path<String>,
) -> ApiResult<Json<UpgradeOffer>> {
    let snapshot = broker.index.snapshot();
    let agent = agent_facts(&snapshot, &agent)?;
    let offered = snapshot.offered_upgrade(agent).ok_or_else(missing)?;
    let has_begun = agent.upgrade().reported == Some(offered.id);
    if !has_begun && !snapshot.may_upgrade_at(agent, Timestamp::now()) {
        return Err(missing());
    }
    let UpgradeFacts { id, image, version, .. } = offered;
    Ok(Json(UpgradeOffer { id: *id, image: image.clone(), version: version.clone() }))
}

/// Report how far an agent is with an upgrade.
///
/// A report may be sent again; one that is late changes nothing. 404 if the upgrade was never offered to the agent: it is not to be sent
/// again.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/upgrade", tag = "agents", request_body = UpgradeReport,
    params(("agent" = String, Path, description = "Id")), responses((status = 204, description = "Stored")))]
pub async fn report_agent_upgrade(State(broker): BrokerState, change: Change) -> ApiResult {
    let report: UpgradeReport = change.json()?;
    check(&report).map_err(ApiError::invalid_request)?;
    let agent = change.caller()?.agent()?.id;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        // Two reports of one agent are compared with each other.
        agent_lock_on_conn(write.conn(), agent).await?.ok_or_else(|| ApiError::not_found("agent"))?;
        let upgrade = facts_of_upgrade(write.conn(), report.id).await?.ok_or_else(missing)?;
        let last = agent_upgrade_step_on_conn(write.conn(), report.id, agent).await?;
        // What was released to an agent stays so when it gets other labels.
        if last.is_none() && !was_released(&broker, &upgrade, agent) {
            return Err(missing());
        }
        let is_news = last.as_ref().is_none_or(|last| last.precedes(report.step, report.at));
        let step = match last {
            Some(last) if !is_news => last.step,
            _ => report.step,
        };
        if is_news {
            agent_upgrade_report_on_conn(write.conn(), agent, &report).await?;
            let UpgradeReport { id, step, version, reason, .. } = &report;
            tracing::info!(agent_id = %agent, upgrade = %id, %step, version, ?reason, "agent reported its upgrade");
        }
        if agent_upgrade_mark_on_conn(write.conn(), agent, report.id, step.is_end()).await? {
            write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent)).await?;
        }
        write.finish_empty().await
    })
    .await
}

fn was_released(broker: &Broker, upgrade: &UpgradeFacts, agent: AgentId) -> bool {
    broker.index.snapshot().agent(agent).is_some_and(|agent| upgrade.includes(agent))
}

fn check(report: &UpgradeReport) -> Result<(), String> {
    let text: &str = match &report.reason {
        Some(UpgradeReason::NotAllowed { allowed }) => allowed.as_deref().unwrap_or_default(),
        Some(UpgradeReason::LowerVersion { current: text } | UpgradeReason::OtherVersion { found: text }) => {
            text
        }
        Some(
            UpgradeReason::InstallationDiffers { command: text }
            | UpgradeReason::NotStarted { message: text }
            | UpgradeReason::NotProved { message: text, .. },
        ) => text,
        Some(UpgradeReason::NotConfirmed { .. } | UpgradeReason::Other) | None => "",
    };
    if text.len() > LONGEST_MESSAGE {
        return Err(format!("a text of a reason can have at most {LONGEST_MESSAGE} bytes"));
    }
    if !is_version(&report.version) {
        return Err("version must be a semantic version, such as 1.2.3".to_owned());
    }
    Ok(())
}
