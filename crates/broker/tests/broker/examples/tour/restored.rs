//! The database was restored: an agent holds a newer version of one stack, and two stacks that the database does not
//! know.

use anyhow::Result;
use brokkr_api::agents::HeldStack;
use brokkr_api::ids::Checksum;
use brokkr_api::{SequenceId, StackId};
use serde_json::json;

use super::{Tour, manifest};
use crate::harness::Agent;
use crate::restore::epoch;

pub async fn walk(tour: &Tour, eu: &mut Agent, web: StackId) -> Result<()> {
    let ops = &tour.ops;
    epoch(&tour.harness.database, &["raise", "--by", "ops"]).await?;
    let (cart, search) = (StackId::generate(), StackId::generate());
    let held = [(web, "web", 40), (cart, "cart", 41), (search, "search", 42)].map(|(id, name, sequence)| {
        HeldStack {
            stack_id: id,
            project: "shop".to_owned(),
            stack_name: name.to_owned(),
            sequence_id: SequenceId(sequence),
            checksum: Some(Checksum::of(manifest(name, "2.0.0").as_bytes())),
            removing: false,
        }
    });
    eu.have_versions(held.to_vec()).await?;
    tour.get(ops, "system/ahead").await?;
    tour.get(ops, "system/unknown").await?;
    tour.get(ops, "system/unconfirmed").await?;

    tour.get(ops, &format!("system/stacks/{cart}/holders")).await?;
    tour.post(ops, &format!("system/stacks/{cart}/settlement"), json!({ "kind": "recreate" })).await?;
    tour.get(ops, "system").await?;

    // The database was restored again, and this time an admin lifts the hold.
    epoch(&tour.harness.database, &["hold", "--because", "restored to yesterday 14:00"]).await?;
    let lift = json!({ "reason": "restored on purpose, INC-42" });
    tour.post(ops, "system/hold/lift", lift).await?;
    Ok(())
}
