//! Rows 19 to 24: the agent is killed at one exact request.

use anyhow::Result;
use brokkr_testkit::proxy::{Action, Matcher, ProxiedRequest, Rule};

use crate::world::{FaultWorld, WAIT_TIMEOUT, uid_and_version};

const BEFORE: [(&str, &str); 4] = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];
const AFTER: [(&str, &str); 4] = [("a", "2"), ("b", "2"), ("c", "2"), ("d", "2")];

/// Kills the agent at the request that the rule holds, and drops its pending requests.
async fn kill_at(world: &FaultWorld, rule: &Rule) -> Result<()> {
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.agent.kill9();
    rule.discard();
    Ok(())
}

fn is_report(request: &ProxiedRequest) -> bool {
    request.method == http::Method::POST && request.path.ends_with("/reports")
}

#[tokio::test]
async fn row_19_killed_before_the_first_apply_leaves_the_old_state_and_applies_later() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&BEFORE).await?;
    let rule = world.api_proxy.when(Matcher::applies().about("configmaps"), Action::HaltBefore);
    world.submit(&AFTER).await?;
    kill_at(&world, &rule).await?;
    assert!(
        world.managed_config_maps().await?.values().all(|value| value == "1"),
        "the old state is complete"
    );

    world.agent.start()?;
    world.wait_until_converged(&AFTER).await?;
    world.assert_invariants().await
}

#[tokio::test]
async fn row_21_killed_after_a_create_the_agent_finds_the_object_by_its_recorded_intention() -> Result<()> {
    let world = FaultWorld::start().await?;
    let rule = world.api_proxy.when(Matcher::applies().named("a"), Action::HaltAfter);
    world.submit(&BEFORE).await?;
    kill_at(&world, &rule).await?;
    let created = world.config_map("a").await?.expect("the create was executed");

    world.agent.start()?;
    world.wait_until_converged(&BEFORE).await?;
    let now = world.config_map("a").await?.expect("still there");
    assert_eq!(uid_and_version(&now).0, uid_and_version(&created).0, "S9: the same object, not another one");
    // It is owned, so it is deleted with its stack.
    world.delete_stack().await?;
    world.wait_until_deleted().await?;
    world.assert_invariants().await
}

#[tokio::test]
async fn row_22_killed_between_prune_deletes_does_only_what_was_planned_and_finishes() -> Result<()> {
    let world = FaultWorld::start().await?;
    let many = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1"), ("f", "1")];
    world.deliver(&many).await?;
    let rule = world.api_proxy.when(Matcher::deletes().about("configmaps").nth(2), Action::HaltAfter);
    world.submit(&[("a", "1"), ("b", "2")]).await?;
    kill_at(&world, &rule).await?;
    let live = world.managed_config_maps().await?;
    assert!(live.contains_key("a") && live.contains_key("b"), "S7: only what is no longer wanted: {live:?}");
    assert!(live.len() < many.len(), "at least one delete was executed: {live:?}");

    world.agent.start()?;
    world.wait_until_converged(&[("a", "1"), ("b", "2")]).await?;
    world.assert_invariants().await
}

#[tokio::test]
async fn row_23_killed_after_the_apply_and_before_the_report_reports_once() -> Result<()> {
    let world = FaultWorld::start().await?;
    let rule = world.broker_proxy.when(Matcher::new(is_report), Action::HaltBefore);
    world.submit(&BEFORE).await?;
    kill_at(&world, &rule).await?;
    assert_eq!(world.count_reported("web", "applied").await?, 0, "nothing was reported yet");

    world.agent.start()?;
    world.wait_until_converged(&BEFORE).await?;
    assert_eq!(world.count_reported("web", "applied").await?, 1, "S12: reported, and once");
    assert_eq!(world.count_reported("web", "healthy").await?, 1);
    world.assert_invariants().await
}

#[tokio::test]
async fn row_24_killed_between_the_report_and_its_receipt_reports_once() -> Result<()> {
    let world = FaultWorld::start().await?;
    let rule = world.broker_proxy.when(Matcher::new(is_report), Action::HaltAfter);
    world.submit(&BEFORE).await?;
    kill_at(&world, &rule).await?;
    assert_eq!(world.count_reported("web", "applied").await?, 1, "the broker accepted it");

    world.agent.start()?;
    world.wait_until_converged(&BEFORE).await?;
    let reports =
        world.broker_proxy.trace().into_iter().filter(|exchange| is_report(&exchange.request)).count();
    assert!(reports > 1, "it was sent again: {reports}");
    assert_eq!(world.count_reported("web", "applied").await?, 1, "S12: counted once");
    assert_eq!(world.count_reported("web", "healthy").await?, 1);
    world.assert_invariants().await
}
