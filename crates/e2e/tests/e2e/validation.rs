//! B2: a dry run of everything before the first real write, and all errors at once.

use anyhow::Result;
use serde_json::{Value, json};

use brokkr_testkit::world::{World, namespace_yaml};

fn bad(space: &str, name: &str) -> String {
    // Only the API server rejects an invalid port.
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {space}}}\n\
         spec:\n  ports: [{{port: 70000}}]\n"
    )
}

#[tokio::test]
async fn b2_all_errors_are_collected_and_nothing_of_the_rest_is_written() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let mark = world.cluster.audit().mark()?;

    let yaml = format!(
        "{}{}{}",
        world.manifest(&[("one", "2"), ("two", "2")]),
        bad(&world.namespace, "bad-one"),
        bad(&world.namespace, "bad-two")
    );
    let output = world.fleet.try_apply("web", "env=prod", &yaml, "60s").await?;
    assert_eq!(output.code, 3, "{}{}", output.stdout, output.stderr);
    let status =
        world.wait_for_status("web", "shop-1", "failed", |status| status["state"] == "failed").await?;
    let named: Vec<&Value> =
        status["objects"].as_array().unwrap().iter().map(|note| &note["object"]).collect();
    let service = |name: &str| json!({"kind": "Service", "namespace": world.namespace, "name": name});
    assert_eq!(named, [&service("bad-one"), &service("bad-two")], "{status}");

    assert_eq!(world.value("one").await?.as_deref(), Some("1"), "the running version stays as it was");
    assert!(world.config_map("two").await?.is_none());
    let writes: Vec<_> = world
        .agent
        .requests(mark)?
        .into_iter()
        .filter(|request| {
            request.is_write() && request.namespace == world.namespace && request.resource != "namespaces"
        })
        .collect();
    assert!(writes.is_empty(), "only dry runs: {writes:?}");

    // A corrected version is applied.
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "3"), ("two", "3")])).await?;
    assert_eq!(world.value("two").await?.as_deref(), Some("3"));
    Ok(())
}

/// C6: refused at submission, in any stack.
#[tokio::test]
async fn c6_system_namespaces_and_brokkrs_own_namespaces_are_refused() -> Result<()> {
    let world = World::start().await?;
    for name in ["kube-system", "brokkr-system"] {
        let file = world.fleet.cli.file("bad.yaml", &namespace_yaml(name))?;
        let output = world.fleet.brokkr(["apply", "bad", "-f", &file.to_string_lossy(), "--to", "*"]).await?;
        assert!(!output.success(), "{name} was accepted: {}", output.stdout);
        let answer = world
            .fleet
            .request(http::Method::PUT, "/api/v1/stacks/bad")
            .json(&serde_json::json!({}))
            .send()
            .await?;
        assert!(answer.status().is_success(), "{}", answer.text().await?);
        let answer = world
            .fleet
            .request(http::Method::POST, "/api/v1/stacks/bad/deployment-objects")
            .header("content-type", "application/yaml")
            .body(namespace_yaml(name))
            .send()
            .await?;
        assert_eq!(answer.status(), 422, "the broker refuses it too: {}", answer.text().await?);
    }
    Ok(())
}
