//! `brokkr.io/yield`: a field that is set at creation and then left to an autoscaler, without a contest.

use anyhow::Result;
use brokkr_testkit::audit::{Mark, Request};
use brokkr_testkit::{Attempt, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use brokkr_testkit::world::{WAIT_TIMEOUT, World, deployment_yaml, namespace_yaml};

struct Scaled {
    world: World,
    deployments: Api<Deployment>,
}

impl Scaled {
    /// Delivers a Deployment `web` with two replicas, which yields `spec.replicas`.
    async fn start() -> Result<Self> {
        let world = World::start().await?;
        let deployments = Api::namespaced(world.client.clone(), &world.namespace);
        let scaled = Self { world, deployments };
        scaled.deliver(2, "registry.example/web:1").await?;
        assert_eq!(scaled.replicas().await?, Some(2), "set at creation");
        Ok(scaled)
    }

    async fn deliver(&self, replicas: u32, image: &str) -> Result<()> {
        let space = &self.world.namespace;
        let yaml = deployment_yaml(space, "web", replicas)
            .replace(
                "metadata:\n  name: web\n",
                "metadata:\n  name: web\n  annotations: {brokkr.io/yield: spec.replicas}\n",
            )
            .replace("registry.example/web:1", image);
        assert!(yaml.contains("brokkr.io/yield"));
        self.world.fleet.apply("web", "env=prod", &format!("{}{yaml}", namespace_yaml(space))).await?;
        Ok(())
    }

    /// Scales as an autoscaler does.
    async fn scale(&self, replicas: i32) -> Result<()> {
        let scale = json!({"spec": {"replicas": replicas}});
        let parameters = PatchParams { field_manager: Some("autoscaler".into()), ..PatchParams::default() };
        self.deployments.patch_scale("web", &parameters, &Patch::Merge(scale)).await?;
        Ok(())
    }

    async fn live(&self) -> Result<Value> {
        Ok(serde_json::to_value(self.deployments.get("web").await?)?)
    }

    async fn replicas(&self) -> Result<Option<i64>> {
        Ok(self.live().await?["spec"]["replicas"].as_i64())
    }

    async fn wait_for_field(&self, pointer: &str, wanted: &Value) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("{pointer} to be {wanted}"), async || match self.live().await {
            Ok(live) if live.pointer(pointer) == Some(wanted) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Returns the agent's writes to the Deployment since the mark.
    fn writes(&self, mark: Mark) -> Result<Vec<Request>> {
        let mut requests = self.world.agent.requests(mark)?;
        requests.retain(|request| request.is_write() && request.resource == "deployments");
        requests.retain(|request| !request.uri.contains("dryRun"));
        Ok(requests)
    }
}

#[tokio::test]
async fn b3_yielded_replicas_are_left_to_the_scaler_by_a_new_object_and_a_repair() -> Result<()> {
    let scaled = Scaled::start().await?;
    scaled.scale(7).await?;
    // A new deployment object with another number.
    scaled.deliver(4, "registry.example/web:2").await?;
    assert_eq!(scaled.replicas().await?, Some(7));
    scaled.wait_for_field("/spec/template/spec/containers/0/image", &json!("registry.example/web:2")).await?;

    // A repair of another field.
    let wrong = json!({"spec": {"template": {"metadata": {"labels": {"app": "web", "team": "red"}}, "spec": {
        "containers": [{"name": "web", "image": "registry.example/web:wrong"}],
    }}}});
    scaled.deployments.patch("web", &PatchParams::default(), &Patch::Strategic(wrong)).await?;
    scaled.wait_for_field("/spec/template/spec/containers/0/image", &json!("registry.example/web:2")).await?;
    assert_eq!(scaled.replicas().await?, Some(7));
    Ok(())
}

/// Only the agent has set the replicas: a new number in the manifest does not change them, and they do not
/// fall back to one.
#[tokio::test]
async fn b3_yielded_replicas_without_a_scaler_stay_as_they_were_created() -> Result<()> {
    let scaled = Scaled::start().await?;
    scaled.deliver(5, "registry.example/web:2").await?;
    scaled.wait_for_field("/spec/template/spec/containers/0/image", &json!("registry.example/web:2")).await?;
    assert_eq!(scaled.replicas().await?, Some(2));
    Ok(())
}

#[tokio::test]
async fn f7_an_autoscaler_causes_neither_drift_nor_a_contest() -> Result<()> {
    let scaled = Scaled::start().await?;
    let mark = scaled.world.cluster.audit().mark()?;
    for replicas in 3..23 {
        scaled.scale(replicas).await?;
    }
    // A repair shows that the agent has seen everything before it.
    let wrong = json!({"metadata": {"annotations": {"brokkr.io/yield": "spec.paused"}}});
    scaled.deployments.patch("web", &PatchParams::default(), &Patch::Merge(wrong)).await?;
    scaled.wait_for_field("/metadata/annotations/brokkr.io~1yield", &json!("spec.replicas")).await?;
    assert_eq!(scaled.replicas().await?, Some(22));
    let writes = scaled.writes(mark)?;
    // One write when the field passes to the scaler, and the repair. Either may conflict with a write of the
    // scaler and be repeated.
    let done = writes.iter().filter(|request| request.code < 300).count();
    assert!(done <= 3, "{writes:#?}");
    Ok(())
}

/// Applies a change to the Deployment as another field manager, which then owns these fields.
async fn take_over(scaled: &Scaled, manager: &str, fields: Value) -> Result<()> {
    let mut body = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    scaled.deployments.patch("web", &PatchParams::apply(manager).force(), &Patch::Apply(body)).await?;
    Ok(())
}

/// Delivers the Deployment with these yields, this image and this label of the Pods.
async fn deliver_yielding(world: &World, yields: &str, image: &str, team: &str) -> Result<()> {
    let yaml = deployment_yaml(&world.namespace, "web", 1)
        .replace(
            "metadata:\n  name: web\n",
            &format!(
                "metadata:\n  name: web\n  labels: {{team: {team}}}\n  annotations:\n    example.com/weight: \"1\"\n    \
                 brokkr.io/yield: '{yields}'\n"
            ),
        )
        .replace("registry.example/web:1", image);
    world.fleet.apply("web", "env=prod", &format!("{}{yaml}", namespace_yaml(&world.namespace))).await?;
    Ok(())
}

async fn yielding(yields: &str) -> Result<Scaled> {
    let world = World::start().await?;
    deliver_yielding(&world, yields, "registry.example/web:1", "red").await?;
    let deployments = Api::namespaced(world.client.clone(), &world.namespace);
    Ok(Scaled { world, deployments })
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";
const TEAM: &str = "/metadata/labels/team";

#[tokio::test]
async fn b3_the_image_of_one_container_is_left_to_an_updater() -> Result<()> {
    let yields = "spec.template.spec.containers[name=web].image";
    let scaled = yielding(yields).await?;
    scaled.wait_for_field(IMAGE, &json!("registry.example/web:1")).await?;
    // Nobody has taken it over: a new version does not change it.
    deliver_yielding(&scaled.world, yields, "registry.example/web:2", "blue").await?;
    scaled.wait_for_field(TEAM, &json!("blue")).await?;
    scaled.wait_for_field(IMAGE, &json!("registry.example/web:1")).await?;

    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "registry.example/web:9" }] } } } });
    take_over(&scaled, "updater", image).await?;
    // A repair of another field, and a new version.
    let wrong = json!({ "metadata": { "labels": { "team": "wrong" } } });
    scaled.deployments.patch("web", &PatchParams::default(), &Patch::Merge(wrong)).await?;
    scaled.wait_for_field(TEAM, &json!("blue")).await?;
    scaled.wait_for_field(IMAGE, &json!("registry.example/web:9")).await?;
    deliver_yielding(&scaled.world, yields, "registry.example/web:3", "green").await?;
    scaled.wait_for_field(TEAM, &json!("green")).await?;
    scaled.wait_for_field(IMAGE, &json!("registry.example/web:9")).await?;
    Ok(())
}

#[tokio::test]
async fn b3_annotations_that_match_a_pattern_are_left_to_others() -> Result<()> {
    let yields = "metadata.annotations[example.com/*]";
    let scaled = yielding(yields).await?;
    let weight = "/metadata/annotations/example.com~1weight";
    scaled.wait_for_field(weight, &json!("1")).await?;
    let changed =
        json!({ "metadata": { "annotations": { "example.com/weight": "7", "example.com/extra": "x" } } });
    scaled.deployments.patch("web", &PatchParams::default(), &Patch::Merge(changed)).await?;
    let wrong = json!({ "metadata": { "labels": { "team": "wrong" } } });
    scaled.deployments.patch("web", &PatchParams::default(), &Patch::Merge(wrong)).await?;
    scaled.wait_for_field(TEAM, &json!("red")).await?;
    deliver_yielding(&scaled.world, yields, "registry.example/web:2", "blue").await?;
    scaled.wait_for_field(TEAM, &json!("blue")).await?;
    scaled.wait_for_field(weight, &json!("7")).await?;
    scaled.wait_for_field("/metadata/annotations/example.com~1extra", &json!("x")).await?;
    Ok(())
}

/// A sidecar that others inject is no drift, and new versions keep it.
#[tokio::test]
async fn b3_an_injected_sidecar_is_neither_drift_nor_removed() -> Result<()> {
    let scaled = yielding("spec.replicas").await?;
    let mark = scaled.world.cluster.audit().mark()?;
    let sidecar = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "proxy", "image": "registry.example/proxy:1" }] } } } });
    scaled.deployments.patch("web", &PatchParams::default(), &Patch::Strategic(sidecar)).await?;
    // A repair shows that the agent has seen everything before it.
    let wrong = json!({ "metadata": { "labels": { "team": "wrong" } } });
    scaled.deployments.patch("web", &PatchParams::default(), &Patch::Merge(wrong)).await?;
    scaled.wait_for_field(TEAM, &json!("red")).await?;
    let has_sidecar = async || -> Result<bool> {
        let live = scaled.live().await?;
        let containers =
            live["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
        Ok(containers.iter().any(|container| container["image"] == "registry.example/proxy:1"))
    };
    assert!(has_sidecar().await?);
    let done = scaled.writes(mark)?.iter().filter(|request| request.code < 300).count();
    assert_eq!(done, 1, "only the repair of the label");
    deliver_yielding(&scaled.world, "spec.replicas", "registry.example/web:2", "blue").await?;
    scaled.wait_for_field(TEAM, &json!("blue")).await?;
    assert!(has_sidecar().await?, "a new version keeps it");
    Ok(())
}
