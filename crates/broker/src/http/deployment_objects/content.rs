//! The bytes of a deployment object, exactly as submitted.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use brokkr_api::agents::AgentStatus;
use brokkr_api::audit::AuditKind;
use brokkr_api::protocol::YAML_MEDIA_TYPE;
use brokkr_api::{AgentId, ErrorCode, SequenceId};
use brokkr_manifest::{Budget, ManifestErrors, redacted};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::state::Broker;
use crate::domain::envelope::desired;
use crate::state::contents::present;
use crate::error::ApiError;
use crate::http::headers::{has_already, position, text};
use crate::http::reading::reading;
use crate::store::deployment_objects::StoredObject;

/// The bytes of a deployment object, exactly as submitted. They never change. Whoever may not submit does not get
/// values of Secrets: then what is answered are the objects as read, with these values hidden.
#[utoipa::path(get, path = "/api/v1/deployment-objects/{sequence_id}", tag = "deployment objects",
    params(("sequence_id" = i64, Path, description = "Sequence id")),
    responses((status = 200, body = serde_json::Value, content_type = "application/yaml"), (status = 304, description = "Not modified")))]
pub async fn deployment_object_content(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(sequence_id): Path<String>,
    Extension(origin): Extension<Arc<Origin>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("deployment object");
    let sequence_id: SequenceId = sequence_id.parse().map_err(|_| missing())?;
    let stored = broker.contents.get(&broker.pool, sequence_id).await?.ok_or_else(missing)?;
    match &caller {
        Caller::Token(_) if caller.project() == stored.object.project => {}
        Caller::Token(_) => return Err(missing()),
        Caller::Agent(agent) => {
            // Only a no may be a matter of being behind.
            if !concerns(&broker, agent.id, &stored) {
                broker.catch_up_for(&caller, position(&headers)?).await?;
                if !concerns(&broker, agent.id, &stored) {
                    return Err(missing());
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
    let answer = response.headers_mut();
    answer.insert(CONTENT_TYPE, HeaderValue::from_static(YAML_MEDIA_TYPE));
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    answer.insert(ETAG, text(&etag));
    Ok(response)
}

/// The objects with the values of Secrets hidden; none if there is nothing to hide.
async fn without_secrets(stored: Arc<StoredObject>) -> Result<Option<String>, ApiError> {
    if stored.object.is_deletion_marker {
        return Ok(None);
    }
    let failed = "the content could not be prepared";
    let shown = reading(failed, move || {
        let manifest = brokkr_manifest::parse(&stored.content, &Budget::default())?;
        let shown: Vec<_> = manifest.objects.iter().map(|object| redacted(&object.body)).collect();
        let hidden = manifest.objects.iter().zip(&shown).any(|(object, shown)| object.body != *shown);
        // JSON is YAML.
        let text = shown.iter().map(|shown| format!("---\n{shown:#}\n")).collect::<String>();
        Ok::<_, ManifestErrors>(hidden.then_some(text))
    });
    shown.await?.map_err(|error| ApiError::new(ErrorCode::BRK9001, failed).because(error))
}

/// An active agent may read what is in its target state, and any version of what it holds.
fn concerns(broker: &Broker, agent: AgentId, stored: &StoredObject) -> bool {
    let snapshot = broker.index.snapshot();
    let Some(agent) = snapshot.agent(agent).filter(|agent| agent.status == AgentStatus::Active) else {
        return false;
    };
    let targeted = snapshot
        .stack(stored.object.stack_id)
        .and_then(|stack| desired(agent, stack))
        .is_some_and(|wanted| wanted.sequence_id() == stored.object.sequence_id);
    targeted || agent.holds(stored.object.stack_id)
}
