//! Situation 19: the database was restored, and agents have seen newer state.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::postgres::Durability;
use brokkr_testkit::{AgentOptions, Cluster, Fleet, Postgres, ShowLog, eventually};

use super::asking::{explained, follow, types};
use brokkr_testkit::world::{WAIT_TIMEOUT, World};

#[tokio::test]
async fn g3_why_a_database_that_is_older_than_what_agents_have_seen() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let postgres = Arc::new(Postgres::start_with(Durability::Full).await?);
    let fleet = Fleet::start_on(Arc::clone(&postgres), ShowLog::Always).await?;
    let world = World::start_in(cluster, fleet, &AgentOptions::default()).await?;
    let (fleet, server) = (&world.fleet, postgres.server().context("a private server")?);
    fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let backup = server.back_up().await?;
    fleet.apply("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    fleet.broker.kill9();
    server.restore(&backup).await?;
    fleet.broker.start_again().await?;

    // No operator has reported the restore, and so little was lost that positions may not show it. The list
    // of stacks that the agent holds does.
    eventually(WAIT_TIMEOUT, "the restore to be noticed", async || {
        let why = fleet.get("/api/v1/stacks/web/agents/shop-1/why").await?;
        let cause = &why["broken"]["cause"];
        ensure!(cause == "on_hold" || cause == "agent_ahead", "{why}");
        anyhow::Ok(())
    })
    .await?;

    // The procedure of docs/restore.md.
    let hold = "brokkr-broker epoch hold --because 'restored to yesterday 14:00'";
    types(fleet, &world.cluster, hold).await?.ok()?;
    let held = explained(fleet, "19", "web", "on_hold").await?;
    types(fleet, &world.cluster, held.command()?).await?.ok()?;
    let ahead = explained(fleet, "19b", "web", "agent_ahead").await?;
    follow(&world, &ahead, "web").await?;
    // The restored content was published as a new version.
    world.wait_for_value("one", "1").await
}
