//! The real nodes themselves: Pods run, reach Services by name, and nothing is left behind.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::nodes::{leftovers, skipped};
use brokkr_testkit::{Attempt, Cluster, eventually};

const DEADLINE: Duration = Duration::from_secs(90);

#[tokio::test]
async fn pods_run_on_real_nodes_and_nothing_is_left_behind() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let cluster = Cluster::with_real_nodes(2).await?;
    let (name, folder) = (cluster.kernel_name()?, cluster.folder().to_owned());
    // One Pod on each node: the client reaches the server over the network of the nodes, by the name of its Service.
    let [server, client] = [0, 1].map(|at| cluster.nodes()[at].name().to_owned());
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: server, labels: {{app: server}}}}\n\
             spec: {{nodeName: {server}, containers: [{{name: app, image: '{TEST_PROGRAM}', args: [--serve=:8080], \
             readinessProbe: {{httpGet: {{path: /ready, port: 8080}}, periodSeconds: 1}}}}]}}\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {{name: server}}\n\
             spec: {{selector: {{app: server}}, ports: [{{port: 80, targetPort: 8080}}]}}\n"
        ))
        .await?;
    cluster.kubectl(["wait", "--for=condition=Ready", "pod/server", "--timeout=60s"]).await?.ok()?;
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: client}}\nspec: {{nodeName: {client}, restartPolicy: OnFailure, \
             containers: [{{name: app, image: '{TEST_PROGRAM}', \
             args: ['--get=http://server.default.svc.cluster.local', --exit=0]}}]}}\n"
        ))
        .await?;
    eventually(DEADLINE, "the client to have reached the server", async || {
        match cluster.kubectl(["logs", "client"]).await {
            Ok(output) if output.stdout.contains("got http://server") => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    assert!(!leftovers::of(&name, &folder).await?.is_empty(), "what is there now must be found");
    drop(cluster);
    eventually(DEADLINE, "nothing to be left behind", async || match leftovers::of(&name, &folder).await {
        Ok(left) if left.is_empty() && !folder.exists() => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:#?}")),
    })
    .await
}
