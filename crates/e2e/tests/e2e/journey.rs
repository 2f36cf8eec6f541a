//! A failed version at the command line: `why` explains it, a rollback reverts it and bars it. Also watch mode.

use std::collections::BTreeSet;

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use serde_json::Value;

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

#[tokio::test]
async fn a8_a_failed_version_is_explained_rolled_back_and_stays_barred_when_submitted_again() -> Result<()> {
    let world = World::start().await?;
    let brokkr = async |arguments: &[&str]| world.fleet.brokkr(arguments.iter().copied()).await;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let in_sync = brokkr(&["why", "web"]).await?.ok()?;
    assert_eq!(in_sync.stdout, "web is in sync on 1 agent\n");

    let bad = format!("{}nonsense: true\n", world.manifest(&[("one", "2")]));
    let refused = world.fleet.try_apply("web", "env=prod", &bad, "60s").await?;
    assert!(!refused.success() && refused.stderr.contains("next: brokkr why web"), "{refused:?}");
    let why = brokkr(&["why", "web"]).await?.ok()?.stdout;
    assert!(why.contains("web on shop-1: failed at ") && why.contains("✔ verified"), "{why}");
    assert!(why.contains("✖ applied") && why.contains("nonsense") && why.contains("next: "), "{why}");
    let differs = brokkr(&["diff", "web"]).await?;
    assert!(!differs.success() && differs.stdout.contains("nonsense"), "{differs:?}");

    let back = brokkr(&["rollback", "web", "--reason", "nonsense", "--wait"]).await?.ok()?;
    assert!(
        back.stdout.contains("is barred") && back.stderr.contains("web is healthy on 1 agent"),
        "{back:?}"
    );
    assert_eq!(world.value("one").await?.as_deref(), Some("1"));
    let again = world.fleet.try_apply("web", "env=prod", &bad, "60s").await?;
    assert!(
        !again.success() && again.stderr.contains("BRK2011") && again.stderr.contains("nonsense"),
        "{again:?}"
    );
    brokkr(&["wait", "web", "--for", "healthy", "--timeout", "60s"]).await?.ok()?;

    let gone = brokkr(&["stack", "delete", "web", "--yes", "--wait"]).await?.ok()?;
    assert!(receipt_of(&gone.stdout, "shop-1").starts_with(&["removed", "2"]), "a receipt: {gone:?}");
    Ok(())
}

#[tokio::test]
async fn a_watch_prints_each_change_once_and_continues_after_a_restart_of_the_broker() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let events = world.fleet.cli.watch(["events", "--watch", "-o", "json"])?;
    let status = world.fleet.cli.watch(["status", "web", "--watch"])?;
    let stacks = world.fleet.cli.watch(["status", "--watch", "-o", "json"])?;
    let versions = || -> BTreeSet<i64> {
        let log = stacks.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let healthy = lines.filter(|line| line["summary"]["healthy"] == 1);
        healthy.filter_map(|line| line["summary"]["sequence_id"].as_i64()).collect()
    };
    let wait_for_versions = async |times: usize| {
        eventually(WAIT_TIMEOUT, &format!("{times} versions to be reported as healthy"), async || {
            let log = events.log();
            let healthy = log.matches("\"transition\":\"healthy\"").count();
            let rows = status.log().matches("healthy").count();
            if healthy == times && rows >= times && versions().len() == times {
                Attempt::Done(())
            } else {
                Attempt::NotYet(format!("{log}\n{}\n{}", status.log(), stacks.log()))
            }
        })
        .await
    };
    wait_for_versions(1).await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    wait_for_versions(2).await?;
    world.fleet.broker.restart().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "3")])).await?;
    wait_for_versions(3).await?;
    assert!(events.log().contains("{\"type\":\"version\",\"stream\":1}"), "{}", events.log());
    Ok(())
}

/// Returns the columns of an agent's receipt after its name.
fn receipt_of<'a>(table: &'a str, agent: &str) -> Vec<&'a str> {
    let row = table.lines().find(|line| line.starts_with(agent)).unwrap_or_default();
    row.split_whitespace().skip(1).collect()
}
