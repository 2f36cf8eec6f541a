//! The steps of `demo/`, typed on two clusters with real nodes, with a broker beside them. `demo/kind.sh` types the same steps
//! on kind.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::cluster::kubeconfig;
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::nodes::{Image, skipped};
use brokkr_testkit::{Cluster, Launch, Scratch, programs, run};

use crate::beside::BrokerBeside;
use crate::installation::DEADLINE;

const AGENTS: [&str; 2] = ["shop-1", "shop-2"];

#[tokio::test]
async fn the_steps_of_the_demo_run_on_two_clusters() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let (first, second) = tokio::try_join!(Cluster::with_real_nodes(1), Cluster::with_real_nodes(1))?;
    for cluster in [&first, &second] {
        cluster.import(&Image::brokkr("brokkr-agent")?).await?;
    }
    let scratch = Scratch::new("demo")?;
    let contexts = [first.admin_context(AGENTS[0]), second.admin_context(AGENTS[1])];
    let kubeconfig = scratch.join("kubeconfig");
    kubeconfig::write(&kubeconfig, &contexts)?;

    let broker = BrokerBeside::start(&first, &scratch).await?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/steps.sh");
    let folders = [programs::folder()?, programs::kubectl_folder()?];
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths("/usr/bin:/bin")))?;
    let steps = Launch::new("steps.sh", script)
        .args(["join", "deploy", "drift", "why", "remove"])
        .folder(scratch.path())
        .env("PATH", path)
        .env("HOME", scratch.path())
        .env("KUBECONFIG", &kubeconfig)
        .envs(broker.login())
        .env("BROKKR_AGENT_IMAGE", concat!("brokkr-agent:", env!("CARGO_PKG_VERSION")))
        .env("DEMO_CLUSTERS", AGENTS.map(|name| format!("{name}={name}")).join(" "))
        .env("DEMO_IMAGE", TEST_PROGRAM)
        .env("DEMO_TIMEOUT", "2m");
    let output = run(steps, DEADLINE * 2).await?.ok().context("the steps of the demo")?;
    eprintln!("{}", output.stdout);
    let done = output.stdout.lines().filter(|line| line.starts_with("== ") && line.contains(": done after "));
    ensure!(done.count() == 5, "{output:?}");
    ensure!(output.stdout.contains("All steps done after "), "{output:?}");
    Ok(())
}
