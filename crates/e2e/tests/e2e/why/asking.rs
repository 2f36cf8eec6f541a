//! Calls `why` in every way, compares the answers with each other and with the page, and carries out the next step.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_e2e::fits;
use brokkr_testkit::process::run;
use brokkr_testkit::{Attempt, Cluster, Fleet, Launch, Output, eventually, programs};
use serde_json::Value;

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);
/// The longest time that one call of `why` may take.
const LONGEST_CALL: Duration = Duration::from_secs(1);

/// The explanation of a problem.
#[derive(Debug)]
pub struct Explanation {
    pub hop: String,
    pub message: String,
    pub next: String,
    pub command: Option<String>,
    pub evidence: String,
}

impl Explanation {
    /// Returns the command to type.
    pub fn command(&self) -> Result<&str> {
        self.command.as_deref().with_context(|| format!("no command: {self:?}"))
    }
}

/// Waits for the cause of the stack on shop-1, then calls `why` in every way and compares with row `number` of the page.
pub async fn explained(fleet: &Fleet, number: &str, stack: &str, cause: &str) -> Result<Explanation> {
    explained_in(fleet, number, "default", stack, cause).await
}

pub async fn explained_in(
    fleet: &Fleet,
    number: &str,
    project: &str,
    stack: &str,
    cause: &str,
) -> Result<Explanation> {
    let call = async || of_api(fleet, project, stack).await;
    let why = eventually(WAIT_TIMEOUT, &format!("the cause of {stack} to be {cause}"), async || match call()
        .await
    {
        Ok(why) if why["broken"]["cause"] == cause => Attempt::Done(why),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;
    // The best of three, because the machine is small and shared.
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        call().await?;
        quickest = quickest.min(begun.elapsed());
    }
    ensure!(quickest < LONGEST_CALL, "the API took {quickest:?} to say why");

    let arguments = ["why", stack, "--agent", "shop-1", "--project", project];
    // Counts in a message may change between two calls.
    let broken = eventually(WAIT_TIMEOUT, "command line and API to agree", async || {
        let (api, cli) = (call().await?, fleet.brokkr_json(&arguments).await?);
        ensure!(api["broken"] == cli["broken"], "{api} {cli}");
        Ok::<_, anyhow::Error>(api["broken"].clone())
    })
    .await?;
    let text = |field: &str| broken[field].as_str().unwrap_or_default().to_owned();
    let explanation = Explanation {
        hop: text("hop"),
        message: text("message"),
        next: text("next"),
        command: broken["command"]["line"].as_str().map(str::to_owned),
        evidence: why["evidence"].to_string(),
    };
    ensure!(!explanation.message.is_empty() && !explanation.next.is_empty(), "{explanation:?}");

    let page = fleet.brokkr(arguments).await?.ok()?.stdout;
    ensure!(page.contains(&format!("✖ {}", explanation.hop)), "{page}");
    ensure!(page.contains(&format!("next: {}\n", explanation.next)), "{page}");
    if let Some(command) = &explanation.command {
        ensure!(page.contains("\n  changes: ") && page.contains("\n  check first: "), "{page}");
        ensure!(page.ends_with(&format!("\n  {command}\n")), "{page}");
    }
    row(number)?.fits(
        &explanation.hop,
        cause,
        &explanation.message,
        explanation.command.as_deref().unwrap_or(&explanation.next),
    )?;
    Ok(explanation)
}

/// Waits until the stack on shop-1 has no problem.
pub async fn well(fleet: &Fleet, stack: &str) -> Result<Value> {
    well_in(fleet, "default", stack).await
}

pub async fn well_in(fleet: &Fleet, project: &str, stack: &str) -> Result<Value> {
    eventually(WAIT_TIMEOUT, &format!("{stack} to be in sync"), async || {
        match of_api(fleet, project, stack).await {
            Ok(why) if why["state"] == "healthy" && why["broken"].is_null() => Attempt::Done(why),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

async fn of_api(fleet: &Fleet, project: &str, stack: &str) -> Result<Value> {
    let path = format!("/api/v1/stacks/{stack}/agents/shop-1/why");
    let request = fleet.request(http::Method::GET, &path).header("brokkr-project", project);
    let answer = request.send().await?;
    let (status, body) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "GET {path} returned {status}: {body}");
    Ok(serde_json::from_str(&body)?)
}

/// Types a command as an operator with access to broker, database and cluster.
pub async fn types(fleet: &Fleet, cluster: &Cluster, line: &str) -> Result<Output> {
    types_with(fleet, cluster, line, &[]).await
}

pub async fn types_with(
    fleet: &Fleet,
    cluster: &Cluster,
    line: &str,
    environment: &[(&str, &str)],
) -> Result<Output> {
    let (own, kubectl) = (programs::folder()?, programs::kubectl_folder()?);
    let inherited = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{inherited}", own.display(), kubectl.display());
    let launch = Launch::new("bash", "/bin/bash")
        .args(["-c", line])
        .env("PATH", &path)
        .env("XDG_CONFIG_HOME", fleet.cli.config_home())
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("KUBECACHEDIR", fleet.cli.config_home().join("kubectl-cache"))
        .env("BROKKR_DATABASE_URL", fleet.database().url())
        .envs(environment.iter().copied());
    run(launch, COMMAND_TIMEOUT).await
}

/// Types the command that `why` printed, and waits until there is no problem.
pub async fn follow(world: &World, explanation: &Explanation, stack: &str) -> Result<()> {
    let command = explanation.command()?;
    types(&world.fleet, &world.cluster, command).await?.ok().with_context(|| format!("$ {command}"))?;
    well(&world.fleet, stack).await.map(|_| ())
}

/// One row of docs/why.md.
#[derive(Debug)]
pub struct Row {
    hop: String,
    cause: String,
    says: String,
    next: String,
}

/// Returns the row with this number.
pub fn row(number: &str) -> Result<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/why.md");
    let page = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let start = format!("| {number} | ");
    let line =
        page.lines().find(|line| line.starts_with(&start)).with_context(|| format!("no row {number}"))?;
    let cells: Vec<String> =
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', "")).collect();
    let [_, _, hop, cause, says, next] = cells.as_slice() else {
        anyhow::bail!("row {number} has {} cells: {line}", cells.len());
    };
    let [hop, cause, says, next] = [hop, cause, says, next].map(Clone::clone);
    Ok(Row { hop, cause, says, next })
}

impl Row {
    /// Checks an explanation against the row. `…` in the page matches any text.
    pub fn fits(&self, hop: &str, cause: &str, says: &str, next: &str) -> Result<()> {
        let explanation = (hop, cause, says, next);
        ensure!(
            self.hop == hop && self.cause == cause && fits(&self.says, says) && fits(&self.next, next),
            "docs/why.md has {self:?}, but the explanation is {explanation:?}"
        );
        Ok(())
    }
}

/// Pretends that the agents were last seen two hours ago.
pub async fn two_hours_later(fleet: &Fleet) -> Result<()> {
    // A running replica would remember when it has seen them.
    fleet.broker.kill9();
    let mut connection = fleet.database().connect().await?;
    sqlx::query("UPDATE agents SET last_seen_at = now() - interval '2 hours'")
        .execute(&mut connection)
        .await?;
    fleet.broker.start_again().await
}
