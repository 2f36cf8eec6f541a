//! Runs Jobs of a stack again: publishes its newest content as a new version that names them.

use axum::extract::{Path, State};
use brokkr_api::ErrorCode;
use brokkr_api::objects::{DeploymentObject, JobRef, Provenance, Rerun};
use brokkr_api::webhooks::WebhookEvent;
use brokkr_manifest::{Budget, HookUse, hook_of};
use bytes::Bytes;
use http::StatusCode;

use crate::domain::rollout::policy::Kind;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::barred_contents::refusal;
use crate::http::change::Change;
use crate::http::deployment_objects::{announce, publish};
use crate::http::manifest_pool;
use crate::http::paging::QueryParams;
use crate::http::precondition;
use crate::http::rollouts::begin::{RolloutQuery, refuse_if_deleting};
use crate::http::stacks::{find_stack, lock_existing_stack};
use crate::http::write::{self, ResultStorage};
use crate::state::Broker;
use crate::state::contents::present;
use crate::store::barred_contents::barred_content_find_on_conn;
use crate::store::deployment_objects::{NewObject, StoredObject, WaveWait, deployment_object_fetch_content};

/// The Jobs that run again are part of the target state of every agent.
const MOST_JOBS: usize = 100;

/// Run Jobs of a stack again.
///
/// The newest content is published as a new version, and rolled out like any other. Agents that get it run the Jobs again, although
/// they have run with the same manifest before.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/rerun", tag = "stacks", request_body = Rerun,
    params(("stack" = String, Path, description = "Name or id"), RolloutQuery, precondition::IfMatch),
    responses((status = 201, body = DeploymentObject)))]
pub async fn rerun_jobs(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    QueryParams(rollout): QueryParams<RolloutQuery>,
    change: Change,
) -> ApiResult {
    let request: Rerun = change.json_or_default()?;
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    let (stored, jobs) = match prepare(&broker, project, &stack, request.job).await {
        Ok(prepared) => prepared,
        // A repeated request gets its first result, even if it would be refused now.
        Err(refused) => {
            let first = write::first_result(&broker, &change, ResultStorage::Plain).await?;
            return first.ok_or(refused);
        }
    };
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_existing_stack(&mut write, project, &stack).await?;
        precondition::stack(&mut write, &change, &locked).await?;
        refuse_if_deleting(&mut write, &locked).await?;
        rollout.refuse_in_freeze(&broker, locked.id, token.role)?;
        if locked.last() != Some(stored.object.sequence_id) {
            let detail = "the stack got a newer version meanwhile; try again";
            return Err(ApiError::new(ErrorCode::BRK2012, detail));
        }
        if let Some(bar) = barred_content_find_on_conn(write.conn(), &locked, stored.object.checksum).await? {
            return Err(refusal(&bar));
        }
        let new = NewObject {
            checksum: stored.object.checksum,
            parsed_digest: stored.object.parsed_digest,
            is_deletion_marker: false,
            keeps_resources: false,
            is_urgent: rollout.now,
            resources: stored.object.resources,
            wave_wait: WaveWait::Kept(stored.object.wave_wait_seconds),
            rerun: jobs.clone(),
            content: &stored.content,
            submitted_by: &token.name,
            provenance: Provenance::new(None, stored.object.commit.as_deref()).unwrap_or_default(),
        };
        let begun = rollout.begin(&locked, Kind::Version, token.role)?;
        write.audit_reason(&rollout.reason);
        write.audit_digests(Some(stored.object.checksum), Some(stored.object.checksum));
        let published = publish(&mut write, &locked, &new, begun.as_ref()).await?;
        announce(&mut write, WebhookEvent::ObjectSubmitted, &locked, &published).await?;
        if begun.is_some() {
            announce(&mut write, WebhookEvent::RolloutStarted, &locked, &published).await?;
        }
        write.finish(StatusCode::CREATED, &published.object).await
    })
    .await
}

/// Returns the newest version and its Jobs that run again, before the transaction: parsing takes long.
async fn prepare(
    broker: &Broker,
    project: &str,
    stack: &str,
    named: Option<String>,
) -> ApiResult<(StoredObject, Vec<JobRef>)> {
    let none = || ApiError::invalid_request("the stack has no version yet");
    let stack = find_stack(broker, project, stack).await?;
    let newest = stack.sequence_id.ok_or_else(none)?;
    let stored = deployment_object_fetch_content(&broker.pool, newest).await?.ok_or_else(none)?;
    present(&stored)?;
    let bytes = u64::try_from(stored.content.len()).unwrap_or(u64::MAX);
    broker.usage.submission(&broker.pool, project, bytes).await?;
    let jobs = jobs(stored.content.clone(), named).await?;
    Ok((stored, jobs))
}

/// Returns the Jobs of a manifest with this name, or all of them.
async fn jobs(content: Bytes, named: Option<String>) -> ApiResult<Vec<JobRef>> {
    let failed = "failed to parse the newest version";
    let manifest = manifest_pool::run(failed, move || brokkr_manifest::parse(&content, &Budget::default()));
    let manifest =
        manifest.await?.map_err(|error| ApiError::new(ErrorCode::BRK9001, failed).because(error))?;
    let is_run = |object: &&brokkr_manifest::Object| {
        let identity = &object.identity;
        identity.group == "batch"
            && identity.kind == "Job"
            && !matches!(hook_of(object), Some(HookUse::LeftOut(_)))
    };
    let jobs = manifest.objects.iter().filter(is_run).map(|object| {
        let key = object.identity.key();
        JobRef { namespace: key.namespace.unwrap_or_else(|| "default".to_owned()), name: key.name }
    });
    let is_named = |job: &JobRef| {
        named
            .as_ref()
            .is_none_or(|named| *named == job.name || *named == format!("{}/{}", job.namespace, job.name))
    };
    let found: Vec<JobRef> = jobs.filter(is_named).collect();
    if found.len() > MOST_JOBS {
        let detail = format!("the newest version contains {} Jobs; name the one to run", found.len());
        return Err(ApiError::invalid_request(detail));
    }
    match (found.is_empty(), named) {
        (false, _) => Ok(found),
        (true, Some(named)) => {
            Err(ApiError::invalid_request(format!("the newest version contains no Job {named}")))
        }
        (true, None) => Err(ApiError::invalid_request("the newest version contains no Job")),
    }
}
