//! The real nodes themselves: Pods run, reach Services by name, and nothing is left behind.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::nodes::{leftovers, skipped};
use brokkr_testkit::{Attempt, Cluster, Launch, Process, Scratch, eventually};

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
    nothing_is_left(&name, &folder).await?;
    assert!(!folder.exists());
    Ok(())
}

async fn nothing_is_left(name: &str, folder: &Path) -> Result<()> {
    eventually(DEADLINE, "nothing to be left behind", async || match leftovers::of(name, folder).await {
        Ok(left) if left.is_empty() => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:#?}")),
    })
    .await
}

/// Set for the process that is killed: the same test, which only holds a cluster.
const VICTIM: &str = "BROKKR_TEST_VICTIM";

#[tokio::test]
async fn nothing_is_left_behind_by_a_test_that_is_killed() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    if let Some(file) = std::env::var_os(VICTIM) {
        let cluster = Cluster::with_real_nodes(1).await?;
        let held = format!("{}\n{}", cluster.kernel_name()?, cluster.folder().display());
        std::fs::write(&file, held)?;
        return std::future::pending().await;
    }
    let scratch = Scratch::new("victim")?;
    let file = scratch.join("held");
    let arguments = ["--exact", "engine::nothing_is_left_behind_by_a_test_that_is_killed"];
    let victim = std::env::current_exe()?.display().to_string();
    let victim = Launch::new("victim", victim).args(arguments).env(VICTIM, file.display().to_string());
    let victim = Process::start(victim, scratch.path())?;
    let is_written = async || std::fs::read_to_string(&file).is_ok_and(|held| held.lines().count() == 2);
    victim.ready_when(DEADLINE * 2, is_written).await?;
    let held = std::fs::read_to_string(&file)?;
    let (name, folder) = held.split_once('\n').context("a name and a folder")?;
    assert!(!leftovers::of(name, Path::new(folder)).await?.is_empty(), "what is there now must be found");
    victim.kill9();
    nothing_is_left(name, Path::new(folder)).await?;
    // The killed process could not delete its files.
    Ok(std::fs::remove_dir_all(folder)?)
}
