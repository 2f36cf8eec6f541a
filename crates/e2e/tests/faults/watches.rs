//! Rows 31 to 33: watches that are frozen, lose events, or have expired.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::eventually;
use brokkr_testkit::proxy::{Action, CannedResponse, Exchange, Matcher};

use crate::world::{FaultWorld, WAIT_TIMEOUT};
use brokkr_e2e::runs_in_full;

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];
/// The client closes a frozen watch a little after its requested timeout.
const FROZEN: Duration = Duration::from_secs(150);

/// In a full run the agent has to notice the frozen watch itself; otherwise the proxy closes it.
#[tokio::test]
async fn row_31_a_frozen_watch_causes_nothing_wrong_and_drift_is_found_afterwards() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    world.refuse_streaming_lists();
    let frozen = world.api_proxy.when(Matcher::watches("configmaps"), Action::Freeze);
    world.agent.restart()?;
    frozen.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.edit("a", "drifted").await?;
    let mark = world.api_proxy.mark();
    // Polls show that the agent is running; it must not write.
    world.wait_for_polls(3).await?;
    assert!(world.writes_since(mark).is_empty(), "it has received no event and must not guess");
    world.submit(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    world.wait_for_value("b", "2").await?;

    if runs_in_full() {
        let found = async || matches!(world.value("a").await, Ok(Some(value)) if value == "1");
        eventually(FROZEN, "the drift to be found although the watch is frozen", found).await?;
    } else {
        frozen.release();
    }
    world.api_proxy.heal();
    world.wait_until_converged(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    world.assert_invariants().await
}

/// Events of one object are lost; others arrive.
#[tokio::test]
async fn row_32_a_change_without_an_event_is_found_by_the_next_list() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    world.refuse_streaming_lists();
    let dropping = world.api_proxy.when(Matcher::watches("configmaps"), Action::drop_events_of("a"));
    let mark = world.api_proxy.mark();
    world.agent.restart()?;
    world.wait_for_watch("configmaps", mark).await?;
    world.edit("b", "seen").await?;
    world.wait_for_value("b", "1").await?;
    world.edit("a", "drifted").await?;
    dropping.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.edit("b", "seen").await?;
    world.wait_for_value("b", "1").await?;
    assert_eq!(world.value("a").await?.as_deref(), Some("drifted"), "it has received no event");

    // The watch expires; nothing else gives the agent a reason to look. The event is older than the last one that arrived, so
    // only the list shows the change.
    dropping.release();
    let mark = world.api_proxy.mark();
    let expired = world
        .api_proxy
        .when(Matcher::watches("configmaps").nth(1), Action::WatchLine(CannedResponse::gone_line()));
    world.api_proxy.end_watches();
    expired.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.wait_for_value("a", "1").await?;
    let lists = |exchange: &Exchange| exchange.request.is_list() && exchange.request.is_about("configmaps");
    let trace = world.api_proxy.since(mark);
    let (listed, repaired) = (
        trace.iter().position(|exchange| lists(exchange) && exchange.succeeded()),
        trace.iter().position(|exchange| exchange.request.is_apply() && exchange.request.is_named("a")),
    );
    assert!(listed.is_some() && listed < repaired, "the list shows it: {listed:?}, {repaired:?}");

    // A new deployment object is a full reconciliation, independent of watches.
    let dropping = world.api_proxy.when(Matcher::watches("configmaps"), Action::drop_events_of("b"));
    let mark = world.api_proxy.mark();
    world.api_proxy.end_watches();
    world.wait_for_watch("configmaps", mark).await?;
    world.edit("b", "drifted").await?;
    dropping.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.deliver(&MAPS).await?;
    world.api_proxy.heal();
    // So is a restart.
    world.refuse_streaming_lists();
    world.api_proxy.when(Matcher::watches("configmaps"), Action::drop_events_of("c"));
    world.agent.kill9();
    world.edit("c", "drifted").await?;
    world.agent.start()?;
    world.wait_until_converged(&MAPS).await?;
    world.assert_invariants().await
}

#[tokio::test]
async fn row_33_an_expired_watch_is_restarted_and_deletes_nothing() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    let mark = world.api_proxy.mark();
    // Once in the stream, and then as the response to the watch itself, as some proxies do.
    let in_stream = world
        .api_proxy
        .when(Matcher::watches("configmaps").nth(1), Action::WatchLine(CannedResponse::gone_line()));
    let at_start = world
        .api_proxy
        .when(Matcher::watches("configmaps").first(3), Action::Respond(CannedResponse::gone()));
    world.agent.restart()?;
    in_stream.wait_for_hits(1, WAIT_TIMEOUT).await?;
    at_start.wait_for_hits(3, WAIT_TIMEOUT).await?;
    world.edit("a", "drifted").await?;

    world.wait_until_converged(&MAPS).await?;
    let relisted = world.api_proxy.since(mark).into_iter().filter(|exchange| {
        let lists = exchange.request.is_list() || exchange.request.query.contains("sendInitialEvents=true");
        lists && exchange.request.is_about("configmaps") && exchange.succeeded()
    });
    assert!(relisted.count() >= 2, "listed again");
    let deletes: Vec<_> = world
        .writes_since(mark)
        .into_iter()
        .filter(|write| write.request.method == http::Method::DELETE)
        .collect();
    assert!(deletes.is_empty(), "S8: an empty snapshot deletes nothing: {deletes:?}");
    world.assert_invariants().await
}
