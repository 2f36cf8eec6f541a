//! E5: a record is never gone before another is there. The finalizer holds one that was deleted by hand
//! until its copy exists; what is in it starts no deletion, only a stored removal does.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use super::choose::is_leaving;
use super::store::{RecordError, Records};
use super::wire::{FINALIZER, object, other_name};
use crate::keep::own::timely;

/// Lets the others go, and copies the chosen one if it is on its way out, too.
pub async fn leave_one(
    records: &Records,
    chosen: DynamicObject,
    others: Vec<DynamicObject>,
) -> Result<DynamicObject, RecordError> {
    for other in others {
        let_go(records, other).await?;
    }
    if !is_leaving(&chosen) {
        return Ok(chosen);
    }
    let name = other_name(&chosen.name_any());
    tracing::warn!(record = chosen.name_any(), copy = name, "record was deleted by hand: made again");
    let copy = object(&name, records.agent, None, chosen.data.clone());
    let copy = timely(records.api.create(&PostParams::default(), &copy)).await?;
    let_go(records, chosen).await?;
    Ok(copy)
}

/// Takes our finalizer off this very version, and deletes it unless that was asked for already.
pub async fn let_go(records: &Records, object: DynamicObject) -> Result<(), RecordError> {
    let name = object.name_any();
    let others: Vec<&String> =
        object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let patch = Patch::Merge(json!({
        "metadata": {"finalizers": others, "resourceVersion": object.resource_version()},
    }));
    let freed = match timely(records.api.patch(&name, &PatchParams::default(), &patch)).await {
        Ok(freed) => freed,
        Err(error) if error.is(404) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if is_leaving(&object) {
        return Ok(());
    }
    let exactly = DeleteParams::default()
        .preconditions(Preconditions { uid: freed.uid(), resource_version: freed.resource_version() });
    match timely(records.api.delete(&name, &exactly)).await {
        Err(error) if error.is(404) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}
