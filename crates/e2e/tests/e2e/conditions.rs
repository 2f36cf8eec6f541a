//! F5: the conditions of a stack, in the cluster and at the broker.

use anyhow::{Context as _, Result};
use brokkr_testkit::{Attempt, eventually};
use serde_json::{Value, json};

use brokkr_testkit::world::{WAIT_TIMEOUT, World, deployment_yaml, namespace_yaml};

const KINDS: [&str; 7] =
    ["Accepted", "Applied", "Ready", "Drifted", "Contested", "PrunePending", "Suspended"];

/// Returns the conditions of the stack's record, as `kubectl get stacks.brokkr.io -o json` shows them. The broker is not asked.
async fn in_the_cluster(world: &World, stack: &str) -> Result<Vec<Value>> {
    let id = ["get", "configmap", "brokkr-agent-fence", "-n", world.agent.namespace()];
    let id =
        world.cluster.kubectl(id.into_iter().chain(["-o", "jsonpath={.data.agent-id}"])).await?.ok()?.stdout;
    let label = format!("brokkr.io/agent={id}");
    let records = ["get", "stacks.brokkr.io", "-l", &label, "-o", "json"];
    let records: Value = world.cluster.kubectl(records).await?.ok()?.json()?;
    let record =
        records["items"].as_array().into_iter().flatten().find(|record| record["spec"]["stack"] == stack);
    let record = record.with_context(|| format!("no record of {stack}"))?;
    Ok(record["status"]["conditions"].as_array().cloned().unwrap_or_default())
}

fn find<'a>(conditions: &'a [Value], name: &str, kind: &str) -> &'a Value {
    conditions.iter().find(|condition| condition[name] == kind).unwrap_or(&Value::Null)
}

/// Waits until the condition has this status in the cluster.
pub async fn wait_for_condition(world: &World, stack: &str, kind: &str, status: &str) -> Result<Vec<Value>> {
    eventually(WAIT_TIMEOUT, &format!("{kind} of {stack} to be {status}"), async || {
        match in_the_cluster(world, stack).await {
            Ok(conditions) if find(&conditions, "type", kind)["status"] == status => {
                Attempt::Done(conditions)
            }
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn f5_conditions_show_accepted_and_ready_in_the_cluster_and_at_the_broker() -> Result<()> {
    let world = World::start().await?;
    let yaml = format!("{}{}", namespace_yaml(&world.namespace), deployment_yaml(&world.namespace, "web", 3));
    world.fleet.apply("web", "env=prod", &yaml).await?;

    let there = wait_for_condition(&world, "web", "Ready", "True").await?;
    let reported: Vec<&str> = there.iter().filter_map(|condition| condition["type"].as_str()).collect();
    assert_eq!(reported, KINDS, "all of them, in this order");
    assert_eq!(find(&there, "type", "Accepted")["status"], "True");
    assert_eq!(find(&there, "type", "Ready")["message"], "2/2 resources ready");
    for condition in &there {
        assert!(condition["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{condition}");
    }

    let status =
        world.wait_for_status("web", "shop-1", "healthy", |status| status["state"] == "healthy").await?;
    let here = status["conditions"].as_array().context("conditions at the broker")?;
    for (kind, wanted) in KINDS.into_iter().zip(["True", "True", "True", "False", "False", "False"]) {
        let condition = find(here, "kind", kind);
        assert_eq!(condition["status"], wanted, "{condition}");
        assert_eq!(condition["sequence_id"], status["sequence_id"], "{condition}");
        assert_eq!(condition["message"], find(&there, "type", kind)["message"]);
    }
    Ok(())
}

#[tokio::test]
async fn f5_a_stack_that_is_not_ready_names_the_resource_and_the_reason() -> Result<()> {
    let world = World::start().await?;
    let stuck = deployment_yaml(&world.namespace, "stuck", 1).replace(
        "    spec:\n      containers:",
        "    spec:\n      nodeSelector: {no: such-node}\n      containers:",
    );
    let yaml = format!("{}{stuck}", namespace_yaml(&world.namespace));
    world.fleet.submit("web", "env=prod", &yaml).await?;
    let there = wait_for_condition(&world, "web", "Applied", "True").await?;
    let ready = find(&there, "type", "Ready");
    assert_eq!(ready["status"], "False", "applied is not ready: {ready}");
    let message = ready["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(&format!("Deployment {}/stuck: ", world.namespace)), "{message}");

    let is_not_ready = |status: &Value| {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        find(&conditions, "kind", "Ready")["status"] == json!("False")
    };
    world.wait_for_status("web", "shop-1", "not Ready at the broker", is_not_ready).await?;
    let reported = world.fleet.brokkr(["status", "web"]).await?.ok()?.stdout;
    assert!(reported.contains("not Ready for ") && reported.contains("stuck"), "{reported}");
    Ok(())
}
