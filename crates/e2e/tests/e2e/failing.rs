//! D1, D3, D4, and stacks that wait for a missing prerequisite.

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually, unique};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use serde_json::Value;

use brokkr_testkit::world::{WAIT_TIMEOUT, World, config_map_yaml, namespace_yaml};

/// D1: only the created namespace is rolled back.
#[tokio::test]
async fn d1_a_namespace_created_by_a_failed_delivery_is_deleted_and_no_other() -> Result<()> {
    let world = World::start().await?;
    let fresh = unique("fresh");
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let broken = format!(
        "{}{}---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: broken\n  namespace: {fresh}\nnonsense: true\n",
        world.manifest(&[("one", "1")]),
        namespace_yaml(&fresh),
    );
    let output = world.fleet.try_apply("web", "env=prod", &broken, "60s").await?;
    assert!(!output.success(), "{output:?}");
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client.clone());
    eventually(WAIT_TIMEOUT, "the new namespace to be gone", async || {
        match namespaces.get_opt(&fresh).await {
            Ok(None) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("1"));
    assert!(world.live_namespace().await?.is_some(), "it was there before this deployment object");
    world
        .fleet
        .apply("web", "env=prod", &format!("{}{}", world.manifest(&[("one", "2")]), namespace_yaml(&fresh)))
        .await?;
    assert!(namespaces.get_opt(&fresh).await?.is_some());
    Ok(())
}

/// D4: visible in the API, each once, regardless of restarts of the agent.
#[tokio::test]
async fn d4_success_and_failure_each_become_one_event_with_the_error() -> Result<()> {
    let world = World::start().await?;
    let sequence = |event: &Value| event["sequence_id"].as_i64().unwrap_or_default();
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let bad = format!("{}nonsense: true\n", world.manifest(&[("one", "2")]));
    assert!(!world.fleet.try_apply("web", "env=prod", &bad, "60s").await?.success());
    let outcomes = async || -> Result<Vec<(i64, String, String)>> {
        let mut outcomes: Vec<_> = world
            .events("web")
            .await?
            .iter()
            .map(|event| {
                let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                (sequence(event), text("transition"), text("message"))
            })
            .collect();
        outcomes.sort();
        Ok(outcomes)
    };
    let before = outcomes().await?;
    let reported = |transition: &str| before.iter().filter(|(_, reported, _)| reported == transition).count();
    assert_eq!((reported("applied"), reported("healthy"), reported("failed")), (1, 1, 1), "{before:?}");
    let failed = before.iter().find(|(_, reported, _)| reported == "failed").expect("counted above");
    assert!(failed.2.contains("nonsense"), "{failed:?}");
    world.agent.restart()?;
    // The agent is running again when it has delivered something else.
    world.fleet.apply("other", "env=prod", &config_map_yaml(&world.namespace, "two", "2")).await?;
    assert_eq!(outcomes().await?, before, "never lost, never duplicated");
    Ok(())
}

fn job(space: &str, image: &str, annotation: &str) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: load\n  namespace: {space}\n  annotations: {{{annotation}}}\n\
         spec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n      - name: load\n        image: {image}\n"
    )
}

/// D3: refused by default, with the server's message; recreated if the manifest allows it.
#[tokio::test]
async fn d3_a_change_of_an_immutable_field_is_refused_unless_the_manifest_allows_recreation() -> Result<()> {
    let world = World::start().await?;
    world.create_namespace().await?;
    let jobs: Api<Job> = Api::namespaced(world.client.clone(), &world.namespace);
    world.fleet.apply("load", "env=prod", &job(&world.namespace, "a:1", "")).await?;
    let uid = jobs.get("load").await?.metadata.uid;
    let output = world.fleet.try_apply("load", "env=prod", &job(&world.namespace, "a:2", ""), "60s").await?;
    assert!(!output.success(), "{output:?}");
    assert!(format!("{}{}", output.stdout, output.stderr).contains("immutable"), "{output:?}");
    assert_eq!(jobs.get("load").await?.metadata.uid, uid, "left alone");
    world
        .fleet
        .apply("load", "env=prod", &job(&world.namespace, "a:2", "brokkr.io/replace: recreate"))
        .await?;
    assert_ne!(jobs.get("load").await?.metadata.uid, uid, "recreated");
    Ok(())
}

/// The stack waits on a watch without requests, and continues when the namespace exists.
#[tokio::test]
async fn f3_a_stack_that_waits_for_a_namespace_sends_no_requests_and_continues_when_it_exists() -> Result<()>
{
    let world = World::start().await?;
    world.fleet.submit("web", "env=prod", &config_map_yaml(&world.namespace, "one", "1")).await?;
    world
        .wait_for_status("web", "shop-1", "the missing namespace is named", |status| {
            status.to_string().contains(&world.namespace)
        })
        .await?;
    eventually(WAIT_TIMEOUT, "four seconds without requests", async || {
        let mark = world.cluster.audit().mark().expect("an audit log");
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        let asked = world.agent.requests(mark).expect("an audit log");
        let asked: Vec<_> =
            asked.iter().filter(|request| !request.is_watch()).map(|request| &request.uri).collect();
        if asked.is_empty() { Attempt::Done(()) } else { Attempt::NotYet(format!("{asked:?}")) }
    })
    .await?;
    world.create_namespace().await?;
    world.wait_for_value("one", "1").await
}
