//! Rows 25 to 30: requests that were carried out and never answered, or that arrive much later than they were sent;
//! and two processes that are the same agent.

use anyhow::Result;
use brokkr_testkit::proxy::{Action, Exchange, Matcher};
use brokkr_testkit::{Look, eventually};
use kube::api::DeleteParams;

use crate::world::{PATIENCE, World, brief, footprint};

/// The exchanges about one ConfigMap that the API server answered, in its order.
fn about(world: &World, name: &str, method: &http::Method) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = world
        .api
        .trace()
        .into_iter()
        .filter(|exchange| {
            let asked = &exchange.asked;
            asked.is_about("configmaps")
                && asked.is_named(name)
                && asked.is_write()
                && asked.method == *method
        })
        .collect();
    found.sort_by_key(|exchange| exchange.order);
    found
}

/// Waits until a request that was held has reached the API server, and answers its status.
async fn landed(world: &World, name: &str, method: &http::Method, count: usize) -> Result<u16> {
    eventually(PATIENCE, &format!("{count} {method} of {name} to be answered"), async || {
        let all = about(world, name, method);
        let answered: Vec<u16> = all.iter().filter_map(|exchange| exchange.upstream).collect();
        match answered.last() {
            Some(last) if answered.len() >= count => Look::Yes(*last),
            _ => Look::NotYet(format!("{:?}", all.iter().map(brief).collect::<Vec<_>>())),
        }
    })
    .await
}

#[tokio::test]
async fn row_25_an_apply_whose_answer_was_lost_is_repeated_without_effect() -> Result<()> {
    let world = World::start().await?;
    let rule = world.api.when(Matcher::applies().named("a").nth(1), Action::LoseAnswer);
    world.submit(&[("a", "1"), ("b", "1")]).await?;
    rule.reached(1, PATIENCE).await?;
    landed(&world, "a", &http::Method::PATCH, 1).await?;
    let carried_out = footprint(&world.map("a").await?.expect("it was carried out"));

    world.converged(&[("a", "1"), ("b", "1")]).await?;
    assert_eq!(footprint(&world.map("a").await?.expect("a")), carried_out, "the repetition is a no-op");
    world.delete_stack().await?;
    world.gone().await?;
    world.invariants().await
}

#[tokio::test]
async fn row_25_applies_that_were_cut_off_are_repeated() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&[("a", "1"), ("b", "1"), ("c", "1")]).await?;
    let rule = world.api.when(Matcher::applies().about("configmaps").first(2), Action::Cut);
    world.submit(&[("a", "2"), ("b", "1"), ("d", "2")]).await?;
    rule.reached(2, PATIENCE).await?;
    world.converged(&[("a", "2"), ("b", "1"), ("d", "2")]).await?;
    world.invariants().await
}

/// A held write is sent by a process that is long dead, and lands after its successor wrote something newer.
#[tokio::test]
async fn row_26_an_old_apply_that_lands_after_a_newer_one_does_not_win() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let rule = world.api.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    rule.reached(1, PATIENCE).await?;
    world.shop.kill9();
    world.submit(&[("a", "3"), ("b", "3")]).await?;
    world.shop.start()?;
    world.converged(&[("a", "3"), ("b", "3")]).await?;
    let (newest, before) = (world.map("a").await?.expect("a"), about(&world, "a", &http::Method::PATCH));

    rule.release();
    let answered = before.iter().filter(|exchange| exchange.upstream.is_some()).count();
    let status = landed(&world, "a", &http::Method::PATCH, answered + 1).await?;
    assert!((400..500).contains(&status), "S2: the old apply was not refused, but answered {status}");
    assert_eq!(footprint(&world.map("a").await?.expect("a")), footprint(&newest), "the newest stays");
    world.invariants().await
}

#[tokio::test]
async fn row_27_a_delayed_delete_does_not_hit_what_a_user_made_meanwhile() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&[("a", "1"), ("theirs-b", "1")]).await?;
    let rule = world.api.when(Matcher::deletes().named("theirs-b").nth(1), Action::Hold);
    world.submit(&[("a", "2")]).await?;
    rule.reached(1, PATIENCE).await?;
    world.maps().delete("theirs-b", &DeleteParams::default()).await?;
    let users = footprint(&world.put_foreign("theirs-b").await?);

    rule.release();
    let status = landed(&world, "theirs-b", &http::Method::DELETE, 1).await?;
    assert_eq!(status, 409, "the uid is the precondition");
    world.converged(&[("a", "2")]).await?;
    let kept = world.map("theirs-b").await?.expect("the user's object lives");
    assert_eq!(footprint(&kept), users, "and is untouched");
    assert!(about(&world, "theirs-b", &http::Method::DELETE).iter().all(|delete| !delete.succeeded()));
    Ok(())
}

/// As row 26, but the object is gone by the time the apply lands.
#[tokio::test]
async fn row_28_an_apply_that_lands_after_the_deletion_brings_nothing_back() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let rule = world.api.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    rule.reached(1, PATIENCE).await?;
    world.shop.kill9();
    world.delete_stack().await?;
    world.shop.start()?;
    world.gone().await?;

    rule.release();
    let applied = about(&world, "a", &http::Method::PATCH);
    let answered = applied.iter().filter(|exchange| exchange.upstream.is_some()).count();
    let status = landed(&world, "a", &http::Method::PATCH, answered + 1).await?;
    assert_eq!(status, 409, "an apply that names the uid cannot create");
    assert_eq!(world.map("a").await?, None, "stays deleted");
    world.invariants().await
}

/// The same for a create, which has no uid to name: it must be refused, or what it brings back must be found.
#[tokio::test]
async fn row_28_a_create_that_lands_after_the_deletion_is_no_leak() -> Result<()> {
    let world = World::start().await?;
    let rule = world.api.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "1"), ("b", "1")]).await?;
    rule.reached(1, PATIENCE).await?;
    world.shop.kill9();
    world.delete_stack().await?;
    world.shop.start()?;
    world.gone().await?;

    rule.release();
    landed(&world, "a", &http::Method::PATCH, 1).await?;
    eventually(PATIENCE, "what came back to be gone again, or told", async || {
        let told = world.shop.log().contains("is in no record");
        let live = world.live().await?;
        anyhow::ensure!(live.is_empty() || told, "{live:?}");
        Ok(())
    })
    .await?;
    world.invariants().await
}

/// A cloned pod: same account, same memory, same key.
#[tokio::test]
async fn row_29_of_two_processes_with_one_identity_only_the_newer_writes() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let twin = world.shop.twin()?;
    world.shop.wait_for_log("standing down", PATIENCE).await?;
    assert!(world.shop.is_running(), "the older one waits, and does not end");

    world.deliver(&[("a", "2"), ("c", "2")]).await?;
    // Once the newer one is gone, nobody writes until somebody opens a newer session.
    twin.kill9();
    world.edit("a", "drifted").await?;
    let mark = world.api.mark();
    world.polls(3).await?;
    assert_eq!(world.writes(mark).len(), 0, "one that was superseded stays so");
    world.shop.restart()?;
    world.converged(&[("a", "2"), ("c", "2")]).await?;
    world.invariants().await
}

/// A process that sleeps through its own succession, with a write already on its way.
#[tokio::test]
async fn row_30_a_paused_agent_that_was_succeeded_changes_nothing_when_it_wakes() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&[("a", "1"), ("b", "1")]).await?;
    let rule = world.api.when(Matcher::applies().named("a").nth(1), Action::Hold);
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    rule.reached(1, PATIENCE).await?;
    world.shop.pause()?;
    let twin = world.shop.twin()?;
    world.submit(&[("a", "3"), ("b", "3")]).await?;
    world.converged(&[("a", "3"), ("b", "3")]).await?;
    let newest = world.map("a").await?.expect("a");

    let (mark, answered) = (world.api.mark(), about(&world, "a", &http::Method::PATCH));
    let answered = answered.iter().filter(|exchange| exchange.upstream.is_some()).count();
    rule.release();
    world.shop.resume()?;
    let status = landed(&world, "a", &http::Method::PATCH, answered + 1).await?;
    assert!((400..500).contains(&status), "S2: its late write was not refused, but answered {status}");
    world.shop.wait_for_log("standing down", PATIENCE).await?;
    assert_eq!(footprint(&world.map("a").await?.expect("a")), footprint(&newest), "the newest stays");
    let late: Vec<_> = world.writes(mark).into_iter().filter(Exchange::succeeded).collect();
    assert!(late.is_empty(), "{:?}", late.iter().map(brief).collect::<Vec<_>>());
    assert!(twin.is_running());
    world.invariants().await
}
