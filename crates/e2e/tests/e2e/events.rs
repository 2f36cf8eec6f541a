//! Kubernetes Events about the record of a stack, under the agent's own permissions and its fence.

use anyhow::{Context as _, Result};
use brokkr_testkit::{Attempt, eventually};
use serde_json::Value;

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

/// What must not be shown to people who may only read events. The API server quotes it, because it is not the name of a host.
const SECRET: &str = "Hunter2_not-a-name";

async fn record(world: &World) -> Result<String> {
    let stack = world.fleet.get("/api/v1/stacks/web").await?;
    let id = stack["id"].as_str().context("an id")?;
    Ok(format!("web-{}", &id[id.len() - 12..]))
}

async fn describe(world: &World, record: &str) -> Result<String> {
    Ok(world.cluster.kubectl(["describe", "stacks.brokkr.io", record]).await?.ok()?.stdout)
}

/// Waits until the description has an event with these words.
async fn wait_for_event(world: &World, record: &str, words: &[&str]) -> Result<String> {
    eventually(WAIT_TIMEOUT, &format!("an event with {words:?}"), async || {
        match describe(world, record).await {
            Ok(text) if text.lines().any(|line| words.iter().all(|word| line.contains(word))) => {
                Attempt::Done(text)
            }
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

async fn events(world: &World, record: &str) -> Result<Vec<Value>> {
    let of = format!("involvedObject.name={record}");
    let list = ["get", "events", "-n", "default", "--field-selector", &of, "-o", "json"];
    let list: Value = world.cluster.kubectl(list).await?.ok()?.json()?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn f5_kubectl_describe_tells_what_happened_to_a_stack_and_no_secret() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let record = record(&world).await?;
    let version = world.events("web").await?[0]["sequence_id"].to_string();
    wait_for_event(&world, &record, &["Normal", "Healthy", "brokkr-agent", &format!("version {version}")])
        .await?;

    let secret = format!(
        "{}---\napiVersion: v1\nkind: Service\nmetadata:\n  name: key\n  namespace: {}\n\
         spec:\n  type: ExternalName\n  externalName: {SECRET}\n",
        world.manifest(&[("one", "1")]),
        world.namespace,
    );
    let refused = world.fleet.try_apply("web", "env=prod", &secret, "60s").await?;
    assert!(!refused.success() && refused.stderr.contains(SECRET), "{refused:?}");
    wait_for_event(&world, &record, &["Warning", "Failed", "Service", "key"]).await?;
    let before = events(&world, &record).await?;
    assert!(!serde_json::to_string(&before)?.contains(SECRET), "{before:?}");

    // A restart repeats no event, and the steady state makes none.
    world.agent.restart()?;
    world.fleet.active("shop-1").await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    wait_for_event(&world, &record, &["Normal", "Healthy"]).await?;
    let names = |events: &[Value]| {
        events
            .iter()
            .map(|event| event["metadata"]["name"].to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let after = eventually(WAIT_TIMEOUT, "the events of the next version", async || {
        match events(&world, &record).await {
            Ok(after) if after.len() > before.len() => Attempt::Done(after),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    assert!(names(&before).is_subset(&names(&after)));
    assert!(after.iter().all(|event| event["count"] == 1), "{after:?}");
    Ok(())
}
