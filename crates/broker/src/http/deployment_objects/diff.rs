//! Differences between two versions of a stack, always without values of Secrets.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::objects::{Diff, FieldDiff, ResourceChange, ResourceDiff};
use brokkr_api::{ErrorCode, SequenceId, StackId};
use brokkr_manifest::diff::{Change, Difference, diff};
use brokkr_manifest::{Budget, Object};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::manifest_pool;
use crate::http::paging::QueryParams;
use crate::http::stacks::find_stack;
use crate::state::Broker;
use crate::state::contents::present;
use crate::store::deployment_objects::StoredObject;

/// The maximum numbers of resources and fields in a response.
const MOST_RESOURCES: usize = 500;
const MOST_FIELDS: usize = 2000;

#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DiffQuery {
    /// The sequence id to compare from.
    pub from: SequenceId,
    /// The sequence id to compare to.
    pub to: SequenceId,
}

/// Compare two versions of a stack, resource by resource and field by field.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/diff", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), DiffQuery),
    responses((status = 200, body = Diff)))]
pub async fn diff_deployment_objects(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(query): QueryParams<DiffQuery>,
) -> ApiResult<Json<Diff>> {
    let project = caller.project();
    let stack = find_stack(&broker, project, &stack).await?;
    let from = version(&broker, project, stack.id, query.from).await?;
    let to = version(&broker, project, stack.id, query.to).await?;
    let compared = manifest_pool::run("failed to compare the versions", move || {
        let (before, after) = (objects(&from)?, objects(&to)?);
        Ok(shown(query, after.len(), diff(&before, &after)))
    });
    compared.await?.map(Json)
}

async fn version(
    broker: &Broker,
    project: &str,
    stack: StackId,
    sequence_id: SequenceId,
) -> ApiResult<Arc<StoredObject>> {
    let stored = broker.stored_object(sequence_id).await?;
    let own = stored.filter(|stored| stored.object.project == project && stored.object.stack_id == stack);
    let own = own.ok_or_else(|| ApiError::not_found("deployment object"))?;
    present(&own)?;
    Ok(own)
}

/// Parses the objects of a version; a deletion marker has none.
fn objects(stored: &StoredObject) -> ApiResult<Vec<Object>> {
    if stored.object.is_deletion_marker {
        return Ok(Vec::new());
    }
    let read = brokkr_manifest::parse(&stored.content, &Budget::default());
    read.map(|manifest| manifest.objects).map_err(|error| {
        let detail = format!("failed to parse version {}", stored.object.sequence_id);
        ApiError::new(ErrorCode::BRK9001, detail).because(error)
    })
}

fn shown(query: DiffQuery, after: usize, differences: Vec<Difference>) -> Diff {
    let count = |wanted: fn(&Change) -> bool| differences.iter().filter(|one| wanted(&one.change)).count();
    let added = count(|change| matches!(change, Change::Added));
    let removed = count(|change| matches!(change, Change::Removed));
    let changed = count(|change| matches!(change, Change::Changed(_)));
    let mut truncated = differences.len() > MOST_RESOURCES;
    let mut remaining = MOST_FIELDS;
    let mut resources = Vec::new();
    for Difference { key, change } in differences.into_iter().take(MOST_RESOURCES) {
        let (change, mut fields) = match change {
            Change::Added => (ResourceChange::Added, Vec::new()),
            Change::Removed => (ResourceChange::Removed, Vec::new()),
            Change::Changed(fields) => (ResourceChange::Changed, fields),
        };
        truncated |= fields.len() > remaining;
        fields.truncate(remaining);
        remaining -= fields.len();
        resources.push(ResourceDiff {
            group: key.group,
            kind: key.kind,
            namespace: key.namespace,
            name: key.name,
            change,
            fields: fields
                .into_iter()
                .map(|field| FieldDiff { path: field.path, before: field.before, after: field.after })
                .collect(),
        });
    }
    Diff {
        from: query.from,
        to: query.to,
        added,
        removed,
        changed,
        unchanged: after - added - changed,
        resources,
        truncated,
    }
}
