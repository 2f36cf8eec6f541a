//! Rolls a stack back: publishes the content of an earlier version and bars the one that it replaces.

use axum::extract::{Path, State};
use brokkr_api::objects::{DeploymentObject, Provenance, RollBack};
use brokkr_api::rollouts::RolloutState;
use brokkr_api::suspensions::EndCause;
use brokkr_api::webhooks::WebhookEvent;
use brokkr_api::{ErrorCode, SequenceId};
use http::StatusCode;

use crate::domain::rollout::policy::Kind;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::barred_contents::refusal;
use crate::http::change::Change;
use crate::http::deployment_objects::{announce, publish};
use crate::http::precondition;
use crate::http::rollouts::begin::{RolloutQuery, refuse_if_deleting};
use crate::http::stacks::lock_existing_stack;
use crate::http::write::{self, ResultStorage, Write};
use crate::state::contents::present;
use crate::store::barred_contents::{barred_content_find_on_conn, barred_content_insert_on_conn};
use crate::store::deployment_objects::{
    NewObject, NewRollout, StoredObject, WaveWait, deployment_object_before_on_conn,
    deployment_object_fetch_content, deployment_object_fetch_on_conn,
};
use crate::store::rollouts::{rollout_clauses_on_conn, rollout_fetch};
use crate::store::stacks::LockedStack;
use crate::store::suspensions::suspension_end_on_conn;

/// The maximum length of a reason.
const LONGEST_REASON: usize = 1000;

/// Roll a stack back.
///
/// The content of the earlier version is published as a new version. The content that it replaces is barred, so that
/// a pipeline does not submit it again.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/roll-back", tag = "stacks", request_body = RollBack,
    params(("stack" = String, Path, description = "Name or id"), precondition::IfMatch),
    responses((status = 201, body = DeploymentObject)))]
pub async fn roll_back(State(broker): BrokerState, Path(stack): Path<String>, change: Change) -> ApiResult {
    let request: RollBack = change.json_or_default()?;
    if request.reason.len() > LONGEST_REASON {
        return Err(ApiError::invalid_request(format!("reason must have at most {LONGEST_REASON} bytes")));
    }
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_existing_stack(&mut write, project, &stack).await?;
        precondition::stack(&mut write, &change, &locked).await?;
        refuse_if_deleting(&mut write, &locked).await?;
        let no_earlier_version =
            || ApiError::new(ErrorCode::BRK2013, "there is no earlier version to roll back to");
        let newest = locked.last().ok_or_else(no_earlier_version)?;
        let newest =
            deployment_object_fetch_on_conn(write.conn(), newest).await?.ok_or_else(no_earlier_version)?;
        let to = match request.to {
            Some(to) => to,
            None => deployment_object_before_on_conn(write.conn(), &locked, &newest)
                .await?
                .ok_or_else(no_earlier_version)?,
        };
        let earlier = fetch_earlier(&mut write, &locked, to).await?;
        let rollout = rollout_fetch(write.conn(), project, to).await?;
        if rollout.is_some_and(|rollout| rollout.state != RolloutState::Completed) {
            let detail = format!("version {to} was never released to every agent");
            return Err(ApiError::new(ErrorCode::BRK2013, detail));
        }
        if earlier.object.checksum == newest.checksum {
            return Err(ApiError::new(ErrorCode::BRK2013, format!("version {to} has the current content")));
        }
        if let Some(bar) = barred_content_find_on_conn(write.conn(), &locked, earlier.object.checksum).await?
        {
            return Err(refusal(&bar));
        }
        if !request.keep_open && !newest.is_deletion_marker {
            let (content, sequence) = (newest.checksum, newest.sequence_id);
            barred_content_insert_on_conn(
                write.conn(),
                &locked,
                content,
                sequence,
                &token.name,
                &request.reason,
            )
            .await?;
        }
        let new = NewObject {
            checksum: earlier.object.checksum,
            parsed_digest: earlier.object.parsed_digest,
            is_deletion_marker: false,
            keeps_resources: false,
            is_urgent: true,
            resources: earlier.object.resources,
            wave_wait: WaveWait::Kept(earlier.object.wave_wait_seconds),
            rerun: Vec::new(),
            content: &earlier.content,
            submitted_by: &token.name,
            // A reason that is not a valid message is stored with the bar only.
            provenance: Provenance::new(Some(&request.reason), earlier.object.commit.as_deref())
                .unwrap_or_default(),
        };
        if request.force {
            suspension_end_on_conn(write.conn(), &locked, None, EndCause::Forced, &token.name).await?;
        }
        let clauses = rollout_clauses_on_conn(write.conn(), &locked).await?;
        let rollout = RolloutQuery::default().begin(&locked, Kind::Rollback, token.role)?;
        let rollout = rollout.map(|new| NewRollout { policy: new.policy.beginning_with(&clauses), ..new });
        write.audit_digests(Some(newest.checksum), Some(earlier.object.checksum));
        let published = publish(&mut write, &locked, &new, rollout.as_ref()).await?;
        tracing::info!(
            stack_id = %locked.id,
            stack = locked.name,
            %to,
            sequence_id = %published.object.sequence_id,
            "stack rolled back"
        );
        announce(&mut write, WebhookEvent::ObjectSubmitted, &locked, &published).await?;
        if rollout.is_some() {
            announce(&mut write, WebhookEvent::RolloutStarted, &locked, &published).await?;
        }
        write.finish(StatusCode::CREATED, &published.object).await
    })
    .await
}

/// Reads the version to roll back to. Uses the connection of the transaction: waiting for a second one could
/// deadlock.
async fn fetch_earlier(
    write: &mut Write,
    stack: &LockedStack,
    sequence_id: SequenceId,
) -> ApiResult<StoredObject> {
    let stored = deployment_object_fetch_content(write.conn(), sequence_id).await?;
    let stored = stored
        .filter(|stored| stored.object.stack_id == stack.id && !stored.object.is_deletion_marker)
        .ok_or_else(|| ApiError::not_found("deployment object"))?;
    // Fails if its content was deleted after the retention period.
    present(&stored)?;
    Ok(stored)
}
