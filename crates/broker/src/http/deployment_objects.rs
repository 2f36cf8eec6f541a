//! Deployment objects: versions of a stack, submitted, listed and read.

pub mod diff;
mod namespaces;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use axum::{Extension, Json};
use brokkr_api::agents::AgentStatus;
use brokkr_api::audit::{AuditKind, RefusalReason};
use brokkr_api::ids::Checksum;
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::page::Page;
use brokkr_api::protocol::{YAML_MEDIA_TYPE, header};
use brokkr_api::webhooks::WebhookEvent;
use brokkr_api::{AgentId, ErrorCode, SequenceId};
use brokkr_manifest::{Budget, ManifestErrors, redacted};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode};
use utoipa::IntoParams;

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::domain::claims::reads_as_target;
use crate::domain::rollout::policy::Kind;
use crate::domain::webhooks::happening::{Happening, NamedStack};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::barred_contents::refusal;
use crate::http::change::Change;
use crate::http::headers::{has_already, position, text};
use crate::http::manifest_pool;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::precondition;
use crate::http::rollouts::begin::{RolloutQuery, refuse_if_deleting};
use crate::http::stacks::{existing, find_stack};
use crate::http::write::{self, ResultStorage, Write};
use crate::state::Broker;
use crate::state::contents::present;
use crate::store::agents::AgentNamespace;
use crate::store::barred_contents::barred_content_find_on_conn;
use crate::store::deployment_objects::{
    NewObject, NewRollout, PublishedObject, StoredObject, WaveWait, deployment_object_list,
};
use crate::store::holds::hold_released;
use crate::store::stacks::{LockedStack, StackRef};

/// The checksums of a parsed manifest, and its number of resources.
pub struct Reading {
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    pub resources: i32,
    /// The namespaces that the manifest affects.
    pub namespaces: Vec<String>,
}

/// Publishes an object that is no submission: it was checked before, or has no content.
pub async fn publish(
    write: &mut Write,
    stack: &LockedStack,
    new: &NewObject<'_>,
    rollout: Option<&NewRollout>,
) -> ApiResult<PublishedObject> {
    write.publish(stack, new, rollout, false).await?.ok_or_else(not_published)
}

/// Only a bar prevents that an object is published, and a bar does not vanish while the stack is locked.
fn not_published() -> ApiError {
    ApiError::new(ErrorCode::BRK9001, "failed to publish the deployment object")
}

/// Notifies the project's webhooks of a published object, if it has any.
pub async fn announce(
    write: &mut Write,
    event: WebhookEvent,
    stack: &LockedStack,
    published: &PublishedObject,
) -> ApiResult<()> {
    if !published.has_webhooks {
        return Ok(());
    }
    let object = &published.object;
    let named = NamedStack { id: stack.id, name: stack.name.clone() };
    let happening = Happening::of_stack(event, object.created_at, named, object.sequence_id);
    write.notify_webhooks(&stack.project, &happening).await
}

/// Documents the headers that carry a [`Provenance`].
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct ProvenanceHeaders {
    /// Why the version is submitted: percent-encoded UTF-8, at most 1024 characters.
    #[param(rename = "brokkr-message")]
    _message: Option<String>,
    /// The Git commit that the content comes from: 7 to 64 hexadecimal digits.
    #[param(rename = "brokkr-commit")]
    _commit: Option<String>,
}

/// Submit a new version of a stack.
///
/// The body is the complete YAML. It is stored byte for byte.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/deployment-objects", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), RolloutQuery, precondition::IfMatch, ProvenanceHeaders),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 201, body = DeploymentObject)))]
pub async fn submit_deployment_object(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    QueryParams(rollout): QueryParams<RolloutQuery>,
    change: Change,
) -> ApiResult {
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    let provenance = provenance(&change.headers)?;
    let (reading, agents) = match check(&broker, &change).await {
        Ok(checked) => checked,
        // A repeated request gets its first result, even if it would be refused now.
        Err(refused) => {
            let first = write::first_result(&broker, &change, ResultStorage::Plain).await?;
            return first.ok_or(refused);
        }
    };
    write::run_on_stack(&broker, &change, project, &StackRef::read(&stack), async |mut write, locked| {
        let locked = existing(locked)?;
        precondition::stack(&mut write, &change, &locked).await?;
        refuse_if_deleting(&mut write, &locked).await?;
        namespaces::refuse(&broker, locked.id, &agents)?;
        rollout.refuse_in_freeze(&broker, locked.id, token.role)?;
        let new = NewObject {
            checksum: reading.checksum,
            parsed_digest: reading.parsed_digest,
            is_deletion_marker: false,
            keeps_resources: false,
            is_urgent: rollout.now,
            resources: reading.resources,
            wave_wait: WaveWait::AsAnnotated,
            rerun: Vec::new(),
            content: &change.body,
            submitted_by: &token.name,
            provenance: provenance.clone(),
        };
        let begun = rollout.begin(&locked, Kind::Version, token.role)?;
        write.audit_reason(&rollout.reason);
        let Some(published) = write.publish(&locked, &new, begun.as_ref(), true).await? else {
            let bar = barred_content_find_on_conn(write.conn(), &locked, reading.checksum).await?;
            return Err(bar.map_or_else(not_published, |bar| refusal(&bar)));
        };
        write.audit_digests(None, Some(published.object.checksum));
        announce(&mut write, WebhookEvent::ObjectSubmitted, &locked, &published).await?;
        if begun.is_some() {
            announce(&mut write, WebhookEvent::RolloutStarted, &locked, &published).await?;
        }
        write.finish(StatusCode::CREATED, &published.object).await
    })
    .await
}

/// Checks a submission as far as its stack does not matter, before its transaction.
async fn check(broker: &Broker, change: &Change) -> ApiResult<(Reading, Vec<AgentNamespace>)> {
    let bytes = u64::try_from(change.body.len()).unwrap_or(u64::MAX);
    broker.usage.submission(&broker.pool, change.caller()?.project(), bytes).await?;
    let reading = read(change.body.clone()).await?;
    let agents = namespaces::agents_in(broker, change, &reading.namespaces).await?;
    Ok((reading, agents))
}

fn provenance(headers: &HeaderMap) -> ApiResult<Provenance> {
    let text = |name: &'static str| -> ApiResult<Option<String>> {
        let Some(value) = headers.get(name) else { return Ok(None) };
        let decoded = percent_encoding::percent_decode(value.as_bytes()).decode_utf8();
        let text =
            decoded.map_err(|_| ApiError::invalid_request(format!("the header {name} is not UTF-8")))?;
        Ok(Some(text.into_owned()))
    };
    let (message, commit) = (text(header::MESSAGE)?, text(header::COMMIT)?);
    Provenance::new(message.as_deref(), commit.as_deref())
        .map_err(|error| ApiError::invalid_request(error.to_string()))
}

pub async fn read(body: Bytes) -> ApiResult<Reading> {
    let read = manifest_pool::run("failed to parse the manifest", move || {
        brokkr_manifest::parse(&body, &Budget::default()).map(|manifest| Reading {
            checksum: Checksum::of(&body),
            parsed_digest: Checksum(manifest.digest()),
            resources: i32::try_from(manifest.objects.len()).unwrap_or(i32::MAX),
            namespaces: namespaces::affected(&manifest),
        })
    });
    read.await?.map_err(|errors| refused(&errors))
}

fn refused(errors: &ManifestErrors) -> ApiError {
    let count = errors.len();
    let detail = if count == 1 {
        "the manifest has an error".to_owned()
    } else {
        format!("the manifest has {count} errors")
    };
    ApiError::new(ErrorCode::BRK2004, detail).with_errors(errors.iter().map(ToString::to_string).collect())
}

/// List the versions of a stack, newest first.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/deployment-objects", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<DeploymentObject>)))]
pub async fn list_deployment_objects(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<DeploymentObject>>> {
    let project = caller.project();
    let stack = find_stack(&broker, project, &stack).await?;
    let (below, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let objects = deployment_object_list(&broker.pool, project, stack.id, below, limit).await?;
    Ok(Json(Page::cut(objects, limit, |object| object.sequence_id.to_string())))
}

/// Get the content of a deployment object, byte for byte as submitted.
///
/// The content never changes. Callers without permission to submit get the parsed objects with the values of Secrets
/// hidden.
#[utoipa::path(get, path = "/api/v1/deployment-objects/{sequence_id}", tag = "deployment objects",
    params(("sequence_id" = i64, Path, description = "Sequence id")),
    responses((status = 200, body = serde_json::Value, content_type = "application/yaml"), (status = 304, description = "Not modified")))]
pub async fn deployment_object_content(
    State(broker): BrokerState,
    caller: Caller,
    Path(sequence_id): Path<String>,
    Extension(origin): Extension<Arc<Origin>>,
    headers: HeaderMap,
) -> ApiResult {
    let missing = || ApiError::not_found("deployment object");
    let sequence_id: SequenceId = sequence_id.parse().map_err(|_| missing())?;
    let stored = broker.stored_object(sequence_id).await?.ok_or_else(missing)?;
    match &caller {
        Caller::Token(_) if caller.project() == stored.object.project => {}
        Caller::Token(_) => return Err(missing()),
        Caller::Agent(agent) => {
            // Only a refusal can be wrong because this replica is behind.
            if !may_read(&broker, agent.id, &stored).await? {
                broker.catch_up(&caller, position(&headers)?).await?;
                broker.index_is_current().await?;
                if !may_read(&broker, agent.id, &stored).await? {
                    return Err(missing().refused_for(RefusalReason::NotReleased));
                }
            }
        }
    }
    present(&stored)?;
    if matches!(caller, Caller::Token(_))
        && let Some(shown) = without_secrets(Arc::clone(&stored)).await?
    {
        if caller.reads_secrets() {
            broker.note(AuditKind::SecretsRead, &caller, &origin).await?;
            let headers = [(CONTENT_TYPE, YAML_MEDIA_TYPE), (CACHE_CONTROL, "no-store")];
            return Ok((headers, stored.content.clone()).into_response());
        }
        let headers = [(CONTENT_TYPE, YAML_MEDIA_TYPE), (CACHE_CONTROL, "no-store")];
        return Ok((headers, shown).into_response());
    }
    let etag = format!("\"{}\"", stored.object.checksum);
    let mut response = if has_already(&headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Body::from(stored.content.clone()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(YAML_MEDIA_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    headers.insert(ETAG, text(&etag));
    Ok(response)
}

/// Returns the objects with the values of Secrets hidden; none if there are none to hide.
async fn without_secrets(stored: Arc<StoredObject>) -> ApiResult<Option<String>> {
    if stored.object.is_deletion_marker {
        return Ok(None);
    }
    let failed = "failed to hide the values of Secrets";
    let shown = manifest_pool::run(failed, move || {
        let manifest = brokkr_manifest::parse(&stored.content, &Budget::default())?;
        let shown: Vec<_> = manifest.objects.iter().map(|object| redacted(&object.body)).collect();
        let hidden = manifest.objects.iter().zip(&shown).any(|(object, shown)| object.body != *shown);
        // JSON is valid YAML.
        let text = shown.iter().map(|shown| format!("---\n{shown:#}\n")).collect::<String>();
        Ok::<_, ManifestErrors>(hidden.then_some(text))
    });
    shown.await?.map_err(|error| ApiError::new(ErrorCode::BRK9001, failed).because(error))
}

/// Returns whether the agent may read the object: the stack targets it now, or it held the stack as a target when this
/// version was released.
async fn may_read(broker: &Broker, agent: AgentId, stored: &StoredObject) -> ApiResult<bool> {
    let (stack, version) = (stored.object.stack_id, stored.object.sequence_id);
    let holds = {
        let snapshot = broker.index.snapshot();
        let Some(facts) = snapshot.agent(agent).filter(|facts| facts.status == AgentStatus::Active) else {
            return Ok(false);
        };
        if snapshot.stack(stack).is_some_and(|stack| reads_as_target(facts, stack, version)) {
            return Ok(true);
        }
        facts.holds(stack)
    };
    let released = if holds { hold_released(&broker.pool, agent, stack).await? } else { None };
    Ok(released.is_some_and(|released| version <= released))
}
