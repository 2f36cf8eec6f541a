//! Without changes the agent sends no requests, according to the API server's audit log.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use jiff::{SignedDuration, Timestamp};

use brokkr_testkit::world::{World, deployment_yaml, uid_and_version};

/// 20 poll intervals without changes: no request but watches.
#[tokio::test]
async fn f3_twenty_quiet_poll_intervals_make_no_request_and_move_nothing() -> Result<()> {
    let world = World::start().await?;
    let yaml = format!(
        "{}{}",
        world.manifest(&[("one", "1"), ("two", "2")]),
        deployment_yaml(&world.namespace, "web", 2)
    );
    world.fleet.apply("web", "env=prod", &yaml).await?;
    let before = uid_and_version(&world.config_map("one").await?.expect("one"));
    let seen_at = |agent: &serde_json::Value| agent["last_seen_at"].as_str().map(str::parse::<Timestamp>);

    let mark = world.cluster.audit().mark()?;
    let started = Timestamp::now();
    // Changes of foreign objects in the same namespace cause no requests.
    for number in 0..20 {
        world.apply_foreign(&format!("theirs-{number}")).await?;
    }
    eventually(Duration::from_secs(90), "20 poll intervals to pass", async || {
        let agent = world.fleet.agent("shop-1").await.ok().flatten().unwrap_or_default();
        match seen_at(&agent) {
            Some(Ok(seen)) if seen.duration_since(started) >= SignedDuration::from_secs(20) => {
                Attempt::Done(())
            }
            other => Attempt::NotYet(format!("last seen {other:?}")),
        }
    })
    .await?;

    let requests = world.agent.requests(mark)?;
    let (leases, rest): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .filter(|request| !request.is_watch())
        .partition(|request| request.resource == "leases");
    assert!(rest.is_empty(), "requests were made: {rest:?}");
    assert!(leases.len() <= 2, "at most one Lease renewal per 20 s: {leases:?}");
    assert_eq!(uid_and_version(&world.config_map("one").await?.expect("one")), before);

    // F3: every watch selects by Brokkr's label, so the agent never receives foreign objects.
    let all = world.agent.requests(Default::default())?;
    let watches: Vec<_> = all.iter().filter(|request| request.is_watch()).collect();
    assert!(!watches.is_empty());
    assert!(watches.iter().all(|watch| watch.uri.contains("labelSelector=brokkr.io")), "{watches:?}");
    Ok(())
}
