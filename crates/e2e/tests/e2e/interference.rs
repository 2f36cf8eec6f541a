//! What others do to the objects, rights and state of an agent: receipts stay true (J3), blindness is reported (J4), and the
//! agent goes on by itself.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::agent::install;
use brokkr_testkit::{AgentOptions, Attempt, eventually, unique};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use brokkr_testkit::world::{AGENT, WAIT_TIMEOUT, World, counter_definition, namespace_yaml};

/// Deletes the stack, and returns the notes of the receipt: name of the object, reason and details.
async fn receipt(world: &World, stack: &str) -> Result<Vec<(String, String, Value)>> {
    let gone = world.fleet.brokkr(["stack", "delete", stack, "--yes", "--wait", "-o", "json"]).await?.ok()?;
    let status = serde_json::from_str::<Value>(&gone.stdout)?["status"][0].clone();
    ensure!(status["state"] == "removed", "{status}");
    notes(&status)
}

fn notes(status: &Value) -> Result<Vec<(String, String, Value)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let notes = status["objects"].as_array().context("notes")?.iter();
    Ok(notes
        .map(|note| (text(&note["object"]["name"]), text(&note["reason"]), note["details"].clone()))
        .collect())
}

fn note_of<'a>(notes: &'a [(String, String, Value)], name: &str) -> Option<(&'a str, &'a Value)> {
    notes.iter().find(|(of, ..)| of == name).map(|(_, reason, details)| (reason.as_str(), details))
}

async fn patch(world: &World, name: &str, patch: Value) -> Result<()> {
    world.config_maps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// The fence allows no agent to delete an object without the label.
#[tokio::test]
async fn j3_an_object_that_lost_its_label_is_left_and_named_and_the_removal_ends() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    world.agent.kill9();
    patch(&world, "one", json!({"metadata": {"labels": {"brokkr.io/agent": null}}})).await?;
    // Deleted while the agent is down: otherwise it would set the label again.
    let stack = world.fleet.get("/api/v1/stacks/web").await?["id"].as_str().unwrap_or_default().to_owned();
    world.fleet.brokkr(["stack", "delete", "web", "--yes"]).await?.ok()?;
    world.agent.start()?;
    let removed = |status: &Value| status["state"] == "removed";
    let notes = notes(&world.wait_for_status(&stack, AGENT, "removed", removed).await?)?;
    assert_eq!(note_of(&notes, "one"), Some(("Left", &"label_removed".into())), "{notes:?}");
    assert_eq!(note_of(&notes, "two").map(|(reason, _)| reason), Some("Gone"), "{notes:?}");
    ensure!(world.config_map("one").await?.is_some() && world.config_map("two").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn j3_the_receipt_names_what_stays_because_of_its_owner() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let owner = world.apply_foreign("theirs").await?;
    let uid = owner.metadata.uid.context("a uid")?;
    let owned = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": uid}]);
    patch(&world, "one", json!({"metadata": {"ownerReferences": owned}})).await?;
    let notes = receipt(&world, "web").await?;
    assert_eq!(note_of(&notes, "one"), Some(("Left", &"owner_reference".into())), "{notes:?}");
    assert_eq!(note_of(&notes, "two").map(|(reason, _)| reason), Some("Gone"), "{notes:?}");
    ensure!(world.config_map("one").await?.is_some() && world.config_map("two").await?.is_none());
    Ok(())
}

/// A definition stops serving the version in which a stack was applied; its objects live on in another one.
#[tokio::test]
async fn j3_objects_of_a_version_that_is_no_longer_served_are_deleted_in_another() -> Result<()> {
    let group = format!("{}.example.com", unique("shop"));
    let install = vec![format!("--kind=*.{group}")];
    let world = World::start_with(&AgentOptions { install, ..AgentOptions::default() }).await?;
    world.cluster.apply(&counter_definition(&group, true).to_string()).await?;
    let name = format!("crd/counters.{group}");
    world.cluster.kubectl(["wait", "--for=condition=Established", &name, "--timeout=60s"]).await?.ok()?;
    let space = &world.namespace;
    let counter = format!(
        "---\napiVersion: {group}/v1beta1\nkind: Counter\nmetadata: {{name: front, namespace: {space}}}\nspec: {{size: 1}}\n"
    );
    world.fleet.apply("web", "env=prod", &(namespace_yaml(space) + &counter)).await?;

    world.agent.kill9();
    world.cluster.apply(&counter_definition(&group, false).to_string()).await?;
    let resource = format!("counters.v1.{group}");
    eventually(WAIT_TIMEOUT, "the old version to be gone", async || {
        let old = world.cluster.kubectl(["get", "--raw", &format!("/apis/{group}/v1beta1")]).await;
        old.is_ok_and(|old| old.ok().is_err())
    })
    .await?;
    world.cluster.kubectl(["get", &resource, "front", "-n", space]).await?.ok()?;
    world.agent.start()?;
    let notes = receipt(&world, "web").await?;
    assert_eq!(note_of(&notes, "front").map(|(reason, _)| reason), Some("Gone"), "{notes:?}");
    let left = world.cluster.kubectl(["get", &resource, "-n", space, "-o", "name"]).await?.ok()?;
    ensure!(left.stdout.trim().is_empty(), "{}", left.stdout);
    Ok(())
}

#[tokio::test]
async fn j4_a_stack_with_a_watch_that_is_denied_is_degraded_until_it_is_allowed() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let home = world.agent.namespace().to_owned();
    world.agent.kill9();
    for role in ["brokkr-agent-all-namespaces", "brokkr-agent-apps"] {
        let binding = format!("{role}.{home}");
        world.cluster.kubectl(["delete", "clusterrolebinding", &binding]).await?.ok()?;
    }
    world.agent.start()?;
    let blind = |status: &Value| status["state"] == "degraded" && status["reason"] == "CannotWatch";
    world.wait_for_status("web", AGENT, "degraded, because a watch is denied", blind).await?;
    install(&world.cluster, &home, &[""; 0]).await?;
    let healthy = |status: &Value| status["state"] == "healthy";
    world.wait_for_status("web", AGENT, "healthy again", healthy).await?;
    Ok(())
}

/// Without stacks, only the stored state has the session count.
#[tokio::test]
async fn an_agent_that_lost_its_stored_state_continues_above_its_earlier_sessions() -> Result<()> {
    let world = World::start().await?;
    for _ in 0..3 {
        world.agent.restart()?;
        world.fleet.active(AGENT).await?;
        world.agent.wait_for_log("agent started", WAIT_TIMEOUT).await?;
    }
    let before = session_count(&world).await?;
    world.agent.kill9();
    let memory = ["delete", "configmap", "brokkr-agent-memory", "-n", world.agent.namespace()];
    world.cluster.kubectl(memory).await?.ok()?;
    world.agent.start()?;
    let ended = world.agent.ended(WAIT_TIMEOUT).await?;
    ensure!(ended.success(), "{ended}: a kubelet starts it again\n{}", world.agent.log_tail(20));
    world.agent.start()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let after = session_count(&world).await?;
    ensure!(after > before, "{after} after {before}");
    Ok(())
}

async fn session_count(world: &World) -> Result<i64> {
    let agent = world.fleet.agent(AGENT).await?.context("the agent")?;
    agent["session_count"].as_i64().with_context(|| format!("a session count: {agent}"))
}

/// A client that may edit one object could otherwise stop its stack: the fence allows no lower sequence id.
#[tokio::test]
async fn a_sequence_id_that_somebody_has_raised_is_taken_back() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let before = world.config_map("one").await?.context("one")?;
    let raised = json!({"metadata": {"annotations": {"brokkr.io/sequence": "999999999999999"}}, "data": {"value": "wrong"}});
    patch(&world, "one", raised).await?;
    world.wait_for_value("one", "1").await?;
    let after = world.config_map("one").await?.context("one")?;
    assert_eq!(before.metadata.uid, after.metadata.uid, "the same object");
    assert_eq!(before.annotations(), after.annotations());
    assert_eq!(before.labels(), after.labels());

    // While the agent is down, and with a new version to apply.
    world.agent.kill9();
    patch(&world, "two", json!({"metadata": {"annotations": {"brokkr.io/sequence": "999999999999999"}}}))
        .await?;
    world.agent.start()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "3"), ("two", "4")])).await?;
    let values = [world.value("one").await?, world.value("two").await?];
    assert_eq!(values.map(Option::unwrap_or_default), ["3", "4"]);
    let events = world.events("web").await?;
    let refused: Vec<&Value> = events.iter().filter(|event| event.to_string().contains("Fenced")).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    Ok(())
}

/// A cluster that is short of storage, or a webhook on the records.
#[tokio::test]
async fn j4_a_record_that_cannot_be_written_is_reported_and_healthy_again_afterwards() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let home = world.agent.namespace();
    let binding = format!("brokkr-agent-records.{home}");
    let rights = world.cluster.kubectl(["get", "clusterrolebinding", &binding, "-o", "json"]).await?.ok()?;
    world.cluster.kubectl(["delete", "clusterrolebinding", &binding]).await?.ok()?;
    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    let blocked = |status: &Value| status["state"] == "blocked" && status["reason"] == "RecordNotWritten";
    world.wait_for_status("web", AGENT, "blocked, because its record cannot be written", blocked).await?;
    ensure!(world.value("one").await?.as_deref() == Some("1"), "nothing is written without a record");

    let mut rights: Value = serde_json::from_str(&rights.stdout)?;
    let metadata = rights["metadata"].as_object_mut().context("metadata")?;
    metadata.retain(|field, _| field == "name" || field == "labels");
    world.cluster.apply(&rights.to_string()).await?;
    let healthy = |status: &Value| status["state"] == "healthy" && status["sequence_id"].is_number();
    world.wait_for_status("web", AGENT, "healthy again", healthy).await?;
    eventually(WAIT_TIMEOUT, "the new value", async || match world.value("one").await {
        Ok(Some(value)) if value == "2" => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await
}
