//! E5: if another client deletes a record, the finalizer keeps it until a copy exists. Deleting a record
//! deletes no object; only a stored removal does.

use brokkr_api::AgentId;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::choose::is_deleting;
use super::wire::{FINALIZER, object, other_name};
use crate::own_objects::{RequestError, with_deadline};

/// Lets the other records be deleted (see [`release`]), and copies the chosen one if it is being deleted too.
pub async fn keep_one(
    api: &Api<DynamicObject>,
    agent: AgentId,
    chosen: DynamicObject,
    others: Vec<DynamicObject>,
) -> Result<DynamicObject, RequestError> {
    for other in others {
        release(api, other).await?;
    }
    if !is_deleting(&chosen) {
        return Ok(chosen);
    }
    let name = other_name(&chosen.name_any());
    tracing::warn!(
        record = chosen.name_any(),
        copy = name,
        "someone deleted the record; recreating it under another name"
    );
    let copy = object(&name, agent, None, chosen.data.clone());
    let copy = with_deadline(api.create(&PostParams::default(), &copy)).await?;
    release(api, chosen).await?;
    Ok(copy)
}

/// Removes our finalizer, unless the record has changed, and deletes the record if it is not being deleted
/// already.
pub async fn release(api: &Api<DynamicObject>, object: DynamicObject) -> Result<(), RequestError> {
    let name = object.name_any();
    let others: Vec<&String> =
        object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let patch = Patch::Merge(json!({
        "metadata": {"finalizers": others, "resourceVersion": object.resource_version()},
    }));
    let released = match with_deadline(api.patch(&name, &PatchParams::default(), &patch)).await {
        Ok(released) => released,
        Err(error) if error.is(404) => return Ok(()),
        Err(error) => return Err(error),
    };
    if is_deleting(&object) {
        return Ok(());
    }
    let exactly = DeleteParams::default()
        .preconditions(Preconditions { uid: released.uid(), resource_version: released.resource_version() });
    match with_deadline(api.delete(&name, &exactly)).await {
        Err(error) if error.is(404) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}
