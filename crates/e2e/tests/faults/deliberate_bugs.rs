//! Rows that find deliberate bugs which no other row finds (`cargo xtask faults bugs`).

use anyhow::Result;
use brokkr_testkit::proxy::{Action, Matcher};
use bytes::Bytes;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{AGENT, FaultWorld, WAIT_TIMEOUT, summary};

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

/// The owner of an object is read from the object and not from a cached copy.
#[tokio::test]
async fn row_31_an_object_that_another_agent_took_during_a_frozen_watch_is_not_taken_back() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    world.refuse_streaming_lists();
    let frozen = world.api_proxy.when(Matcher::watches("configmaps"), Action::Freeze);
    world.agent.restart()?;
    frozen.wait_for_hits(1, WAIT_TIMEOUT).await?;
    let other = uuid::Uuid::new_v4().to_string();
    let theirs = json!({"metadata": {
        "labels": {"brokkr.io/agent": other}, "annotations": {"brokkr.io/stack-id": other},
    }});
    world.config_maps().patch("a", &PatchParams::default(), &Patch::Merge(theirs)).await?;
    let mark = world.api_proxy.mark();
    world.submit(&[("a", "2"), ("b", "2"), ("c", "2")]).await?;
    world
        .wait_for_status("web", AGENT, "the refusal to be reported", |status| status["state"] == "failed")
        .await?;
    assert_eq!(world.value("a").await?.as_deref(), Some("1"), "C4: refused, not taken over");
    let taken: Vec<_> = world
        .writes_since(mark)
        .into_iter()
        .filter(|write| write.request.is_named("a") && write.succeeded())
        .collect();
    assert!(taken.is_empty(), "{:?}", taken.iter().map(summary).collect::<Vec<_>>());
    Ok(())
}

/// D4, F6: applied means that everything has been written.
#[tokio::test]
async fn row_23_applied_is_not_reported_before_the_last_write_is_done() -> Result<()> {
    let world = FaultWorld::start().await?;
    let held = world.api_proxy.when(Matcher::applies().named("c").nth(1), Action::Hold);
    world.submit(&MAPS).await?;
    held.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.wait_for_polls(2).await?;
    let events = world.events("web").await?;
    assert!(
        events.iter().all(|event| event["transition"] != "applied"),
        "D4: applied was reported before the last write: {events:?}"
    );
    held.release();
    world.wait_for_status("web", AGENT, "applied", |status| status["state"] != "pending").await?;
    world.wait_for_value("c", "1").await
}

/// A complete, current and empty list deletes nothing: missing objects are read one by one, and found.
#[tokio::test]
async fn row_34_a_list_that_is_empty_by_mistake_deletes_nothing() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    let before = world.managed_config_maps().await?;
    world.refuse_streaming_lists();
    let emptied =
        world.api_proxy.when(Matcher::lists("configmaps"), Action::change_body(|_, body| empty(&body)));
    let mark = world.api_proxy.mark();
    world.agent.restart()?;
    emptied.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.wait_for_polls(3).await?;
    let deletes: Vec<_> = world
        .writes_since(mark)
        .into_iter()
        .filter(|write| write.request.method == http::Method::DELETE)
        .collect();
    assert!(deletes.is_empty(), "S8: {:?}", deletes.iter().map(summary).collect::<Vec<_>>());
    assert_eq!(world.managed_config_maps().await?, before);

    world.api_proxy.heal();
    world.deliver(&[("a", "2"), ("b", "1")]).await?;
    world.assert_invariants().await
}

fn empty(body: &Bytes) -> Bytes {
    let mut list: Value = serde_json::from_slice(body).unwrap_or_default();
    list["items"] = json!([]);
    Bytes::from(list.to_string())
}
