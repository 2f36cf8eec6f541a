//! Rows 25 to 30: requests that are executed without a response, or that arrive much later; and two processes with one identity.

use anyhow::Result;
use brokkr_testkit::proxy::{Action, Exchange, Matcher};
use brokkr_testkit::{Attempt, eventually};
use kube::api::DeleteParams;

use crate::world::{FaultWorld, WAIT_TIMEOUT, summary, uid_and_version};

/// Returns the writes of one ConfigMap with this method, in the order in which the API server executed them.
fn about(world: &FaultWorld, name: &str, method: &http::Method) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = world
        .api_proxy
        .trace()
        .into_iter()
        .filter(|exchange| {
            let request = &exchange.request;
            request.is_about("configmaps")
                && request.is_named(name)
                && request.is_write()
                && request.method == *method
        })
        .collect();
    found.sort_by_key(|exchange| exchange.order);
    found
}

/// Waits until a held request has reached the API server, and returns its status.
async fn landed(world: &FaultWorld, name: &str, method: &http::Method, count: usize) -> Result<u16> {
    eventually(WAIT_TIMEOUT, &format!("{count} {method} of {name} to be answered"), async || {
        let all = about(world, name, method);
        let answered: Vec<u16> = all.iter().filter_map(|exchange| exchange.server_status).collect();
        match answered.last() {
            Some(last) if answered.len() >= count => Attempt::Done(*last),
            _ => Attempt::NotYet(format!("{:?}", all.iter().map(summary).collect::<Vec<_>>())),
        }
    })
    .await
}

#[tokio::test]
async fn row_25_an_apply_with_a_lost_response_is_repeated_without_effect() -> Result<()> {
    let world = FaultWorld::start().await?;
    let rule = world.api_proxy.when(Matcher::applies().named("a").nth(1), Action::LoseResponse);
    world.submit(&[("a", "1"), ("b", "1")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    landed(&world, "a", &http::Method::PATCH, 1).await?;
    let executed = uid_and_version(&world.config_map("a").await?.expect("it was executed"));

    world.wait_until_converged(&[("a", "1"), ("b", "1")]).await?;
    assert_eq!(
        uid_and_version(&world.config_map("a").await?.expect("a")),
        executed,
        "the repetition is a no-op"
    );
    world.delete_stack().await?;
    world.wait_until_deleted().await?;
    world.assert_invariants().await
}

#[tokio::test]
async fn row_25_applies_that_were_cut_off_are_repeated() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&[("a", "1"), ("b", "1"), ("c", "1")]).await?;
    let rule = world.api_proxy.when(Matcher::applies().about("configmaps").first(2), Action::Cut);
    world.submit(&[("a", "2"), ("b", "1"), ("d", "2")]).await?;
    rule.wait_for_hits(2, WAIT_TIMEOUT).await?;
    world.wait_until_converged(&[("a", "2"), ("b", "1"), ("d", "2")]).await?;
    world.assert_invariants().await
}

/// A held write of a dead process lands after its successor has written something newer.
#[tokio::test]
async fn row_26_an_old_apply_that_lands_after_a_newer_one_does_not_win() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let rule = world.api_proxy.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.agent.kill9();
    world.submit(&[("a", "3"), ("b", "3")]).await?;
    world.agent.start()?;
    world.wait_until_converged(&[("a", "3"), ("b", "3")]).await?;
    let (newest, before) =
        (world.config_map("a").await?.expect("a"), about(&world, "a", &http::Method::PATCH));

    rule.release();
    let answered = before.iter().filter(|exchange| exchange.server_status.is_some()).count();
    let status = landed(&world, "a", &http::Method::PATCH, answered + 1).await?;
    assert!((400..500).contains(&status), "S2: the old apply was not refused, but answered {status}");
    assert_eq!(
        uid_and_version(&world.config_map("a").await?.expect("a")),
        uid_and_version(&newest),
        "the newest stays"
    );
    world.assert_invariants().await
}

#[tokio::test]
async fn row_27_a_delayed_delete_does_not_hit_an_object_that_a_user_made_meanwhile() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&[("a", "1"), ("theirs-b", "1")]).await?;
    let rule = world.api_proxy.when(Matcher::deletes().named("theirs-b").nth(1), Action::Hold);
    world.submit(&[("a", "2")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.config_maps().delete("theirs-b", &DeleteParams::default()).await?;
    let users = uid_and_version(&world.apply_foreign("theirs-b").await?);

    rule.release();
    let status = landed(&world, "theirs-b", &http::Method::DELETE, 1).await?;
    assert_eq!(status, 409, "the uid is the precondition");
    world.wait_until_converged(&[("a", "2")]).await?;
    let kept = world.config_map("theirs-b").await?.expect("the user's object exists");
    assert_eq!(uid_and_version(&kept), users, "and is untouched");
    assert!(about(&world, "theirs-b", &http::Method::DELETE).iter().all(|delete| !delete.succeeded()));
    Ok(())
}

/// As row 26, but the object is gone by the time the apply lands.
#[tokio::test]
async fn row_28_an_apply_that_lands_after_the_deletion_restores_nothing() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let rule = world.api_proxy.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.agent.kill9();
    world.delete_stack().await?;
    world.agent.start()?;
    world.wait_until_deleted().await?;

    rule.release();
    let applied = about(&world, "a", &http::Method::PATCH);
    let answered = applied.iter().filter(|exchange| exchange.server_status.is_some()).count();
    let status = landed(&world, "a", &http::Method::PATCH, answered + 1).await?;
    assert_eq!(status, 409, "an apply that names the uid cannot create");
    assert_eq!(world.config_map("a").await?, None, "stays deleted");
    world.assert_invariants().await
}

/// As row 28 for a create, which has no UID: it must be refused, or the created object must be found.
#[tokio::test]
async fn row_28_a_create_that_lands_after_the_deletion_is_no_leak() -> Result<()> {
    let world = FaultWorld::start().await?;
    let rule = world.api_proxy.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "1"), ("b", "1")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.agent.kill9();
    world.delete_stack().await?;
    world.agent.start()?;
    world.wait_until_deleted().await?;

    rule.release();
    landed(&world, "a", &http::Method::PATCH, 1).await?;
    eventually(WAIT_TIMEOUT, "the late object to be deleted or logged", async || {
        let logged = world.agent.log().contains("is in no record");
        let live = world.managed_config_maps().await?;
        anyhow::ensure!(live.is_empty() || logged, "{live:?}");
        Ok(())
    })
    .await?;
    world.assert_invariants().await
}

/// A cloned pod: same account, same state, same key.
#[tokio::test]
async fn row_29_of_two_processes_with_one_identity_only_the_newer_writes() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let twin = world.agent.twin()?;
    world.agent.wait_for_log("writes are suspended", WAIT_TIMEOUT).await?;
    assert!(world.agent.is_running(), "the older one waits, and does not end");

    let mark = world.api_proxy.mark();
    world.deliver(&[("a", "2"), ("c", "2")]).await?;
    let applied = world.writes_since(mark).into_iter().filter(|write| write.request.is_apply());
    let applied: Vec<_> = applied.filter(|write| write.request.is_about("configmaps")).collect();
    assert_eq!(applied.len(), 2, "each once: {:?}", applied.iter().map(summary).collect::<Vec<_>>());
    // Once the newer one is gone, no process writes until one opens a newer session.
    twin.kill9();
    world.edit("a", "drifted").await?;
    let mark = world.api_proxy.mark();
    world.wait_for_polls(3).await?;
    assert_eq!(world.writes_since(mark).len(), 0, "a superseded process does not write");
    world.agent.restart()?;
    world.wait_until_converged(&[("a", "2"), ("c", "2")]).await?;
    world.assert_invariants().await
}

/// A process is paused while one of its writes is on its way, and then its successor starts.
#[tokio::test]
async fn row_30_a_paused_agent_with_a_successor_changes_nothing_when_it_resumes() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let rule = world.api_proxy.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.agent.pause()?;
    let twin = world.agent.twin()?;
    world.submit(&[("a", "3"), ("b", "3")]).await?;
    world.wait_until_converged(&[("a", "3"), ("b", "3")]).await?;
    let newest = world.config_map("a").await?.expect("a");

    let (mark, answered) = (world.api_proxy.mark(), about(&world, "a", &http::Method::PATCH));
    let answered = answered.iter().filter(|exchange| exchange.server_status.is_some()).count();
    rule.release();
    world.agent.resume()?;
    let status = landed(&world, "a", &http::Method::PATCH, answered + 1).await?;
    assert!((400..500).contains(&status), "S2: its late write was not refused, but answered {status}");
    world.agent.wait_for_log("writes are suspended", WAIT_TIMEOUT).await?;
    assert_eq!(
        uid_and_version(&world.config_map("a").await?.expect("a")),
        uid_and_version(&newest),
        "the newest stays"
    );
    let late: Vec<_> = world.writes_since(mark).into_iter().filter(Exchange::succeeded).collect();
    assert!(late.is_empty(), "{:?}", late.iter().map(summary).collect::<Vec<_>>());
    assert!(twin.is_running());
    world.assert_invariants().await
}
