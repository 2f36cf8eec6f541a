//! Rows 31 to 33: watches that say nothing, leave something out, or have forgotten.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::eventually;
use brokkr_testkit::proxy::{Action, Canned, Matcher};

use brokkr_e2e::runs_in_full;
use crate::world::{PATIENCE, World};

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];
/// A watch that says nothing is given up by the client a little after the time that it asked for.
const FROZEN: Duration = Duration::from_secs(150);

/// In full, the agent has to notice by itself; else the connection is found dead at some time.
#[tokio::test]
async fn row_31_a_frozen_watch_causes_nothing_wrong_and_drift_is_found_afterwards() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    world.without_streaming();
    let frozen = world.api.when(Matcher::watches("configmaps"), Action::Freeze);
    world.shop.restart()?;
    frozen.reached(1, PATIENCE).await?;
    world.edit("a", "drifted").await?;
    let mark = world.api.mark();
    // A poll and its answer say that the agent is awake; that it does nothing is what is to be seen.
    world.polls(3).await?;
    assert!(world.writes(mark).is_empty(), "nobody told it, and it must not guess");
    world.submit(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    world.sees_value("b", "2").await?;

    if runs_in_full() {
        let found = async || matches!(world.value("a").await, Ok(Some(value)) if value == "1");
        eventually(FROZEN, "the drift to be found although the watch is frozen", found).await?;
    } else {
        frozen.remove();
    }
    world.api.heal();
    world.converged(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    world.invariants().await
}

/// Events about one object are lost for good; the others go on.
#[tokio::test]
async fn row_32_what_no_event_told_is_found_by_the_next_list() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    world.without_streaming();
    let deaf = world.api.when(Matcher::watches("configmaps"), Action::swallow("a"));
    let mark = world.api.mark();
    world.shop.restart()?;
    world.watching("configmaps", mark).await?;
    world.edit("b", "seen").await?;
    world.sees_value("b", "1").await?;
    world.edit("a", "drifted").await?;
    deaf.reached(1, PATIENCE).await?;
    world.edit("b", "seen").await?;
    world.sees_value("b", "1").await?;
    assert_eq!(world.value("a").await?.as_deref(), Some("drifted"), "nobody told it");

    // A deployment object again is a full reconciliation, whatever the watches said.
    world.deliver(&MAPS).await?;
    world.api.heal();
    // And so is a start.
    world.without_streaming();
    world.api.when(Matcher::watches("configmaps"), Action::swallow("c"));
    world.shop.kill9();
    world.edit("c", "drifted").await?;
    world.shop.start()?;
    world.converged(&MAPS).await?;
    world.invariants().await
}

#[tokio::test]
async fn row_33_a_watch_that_has_forgotten_is_begun_anew_and_deletes_nothing() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    let mark = world.api.mark();
    // Once in the stream, and then as the answer to the watch itself, as some proxies do.
    let in_stream = world.api.when(Matcher::watches("configmaps").nth(1), Action::Line(Canned::gone_line()));
    let at_start = world.api.when(Matcher::watches("configmaps").first(3), Action::Answer(Canned::gone()));
    world.shop.restart()?;
    in_stream.reached(1, PATIENCE).await?;
    at_start.reached(3, PATIENCE).await?;
    world.edit("a", "drifted").await?;

    world.converged(&MAPS).await?;
    let relisted = world.api.since(mark).into_iter().filter(|exchange| {
        let lists = exchange.asked.is_list() || exchange.asked.query.contains("sendInitialEvents=true");
        lists && exchange.asked.is_about("configmaps") && exchange.succeeded()
    });
    assert!(relisted.count() >= 2, "listed again");
    let deletes: Vec<_> =
        world.writes(mark).into_iter().filter(|write| write.asked.method == http::Method::DELETE).collect();
    assert!(deletes.is_empty(), "S8: an empty picture deletes nothing: {deletes:?}");
    world.invariants().await
}
