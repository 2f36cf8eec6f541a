//! Nine operators, delivered to real nodes: with `platform` everything is applied, and what cannot become ready is reported
//! with its reason; with `apps`, they are refused with the missing permission.
//!
//! Their images cannot be pulled here, so their Deployments never become ready. docs/how-to/operators.md shows the table.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::agent::install;
use brokkr_testkit::nodes::skipped;
use brokkr_testkit::{Agent, AgentOptions, Attempt, Cluster, Fleet, Launch, eventually, run};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(180);
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/operators.md");

struct Operator {
    name: &'static str,
    version: &'static str,
    /// The roles that need `--allow-role`.
    exceptions: &'static [&'static str],
}

/// Gatekeeper is the last one, because its webhook refuses all changes of namespaces while it does not run.
const OPERATORS: [Operator; 9] = [
    operator("cert-manager", "1.21.2", &[]),
    operator(
        "kyverno",
        "1.19.1",
        &[
            "kyverno:admission-controller:core",
            "kyverno:admission-controller",
            "kyverno:background-controller",
            "kyverno:cleanup-controller",
            "kyverno:reports-controller",
        ],
    ),
    operator("external-secrets", "1.3.2", &["external-secrets-controller"]),
    operator("metrics-server", "0.9.0", &[]),
    operator("argo-rollouts", "1.10.1", &[]),
    operator("prometheus-operator", "0.85.0", &[]),
    operator("pgfleet", "ours", &[]),
    operator("redkeep", "ours", &[]),
    operator("gatekeeper", "3.23.1", &["gatekeeper-manager-role"]),
];

const fn operator(
    name: &'static str,
    version: &'static str,
    exceptions: &'static [&'static str],
) -> Operator {
    Operator { name, version, exceptions }
}

/// A cluster of its own, because the webhooks of operators affect everything in it.
struct Site {
    cluster: Cluster,
    fleet: Fleet,
    platform: Agent,
    _apps: Agent,
}

impl Site {
    async fn start() -> Result<Self> {
        let cluster = Cluster::with_real_nodes(1).await?;
        let fleet = Fleet::start().await?;
        let options = |profile: &str| AgentOptions {
            install: ["--profile", profile].map(ToOwned::to_owned).to_vec(),
            ..AgentOptions::default()
        };
        let platform =
            fleet.join_with("platform", &[("profile", "platform")], &cluster, &options("platform")).await?;
        let apps = fleet.join_with("apps", &[("profile", "apps")], &cluster, &options("apps")).await?;
        Ok(Self { cluster, fleet, platform, _apps: apps })
    }

    async fn status(&self, stack: &str) -> Result<Value> {
        let rows = self.fleet.brokkr_json(&["status", stack]).await?;
        rows["items"].get(0).cloned().context("the stack is on no agent")
    }

    /// Waits until the message of the stack contains this text.
    async fn says(&self, stack: &str, state: &str, words: &str) -> Result<String> {
        eventually(DEADLINE, &format!("{stack} to be {state}: {words}"), async || {
            match self.status(stack).await {
                Ok(row) if row["state"] == state && row.to_string().contains(words) => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:#?}")),
            }
        })
        .await?;
        let why = self.fleet.brokkr(["why", stack]).await?.stdout;
        Ok(why.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The profile `apps` refuses the operator, with the missing permission and the flag that grants it.
    async fn refused_by_apps(&self, operator: &Operator, yaml: &str) -> Result<()> {
        let stack = format!("{}-apps", operator.name);
        self.fleet.submit(&stack, "profile=apps", yaml).await?;
        let why =
            self.says(&stack, "failed", "clusterroles.rbac.authorization.k8s.io in the cluster").await?;
        ensure!(why.contains("with the same flags and --profile platform"), "{why}");
        let agent = self.fleet.agent("apps").await?.context("the agent")?;
        let label = format!("brokkr.io/agent={}", agent["id"].as_str().context("an id")?);
        let kinds = "namespaces,serviceaccounts,configmaps,roles,services,deployments";
        let written = self.cluster.kubectl(["get", kinds, "-A", "-l", &label, "-o", "name"]).await?.ok()?;
        ensure!(written.stdout.is_empty(), "{} was written: {}", operator.name, written.stdout);
        self.fleet.delete(&stack).await?;
        Ok(())
    }

    /// Without its exceptions, the fence refuses the operator and names them one by one.
    async fn refused_by_the_fence(&self, operator: &Operator, yaml: &str) -> Result<()> {
        let home = self.platform.namespace();
        self.fleet.submit(operator.name, "profile=platform", yaml).await?;
        if operator.exceptions.is_empty() {
            return Ok(());
        }
        let why = self.says(operator.name, "failed", "--allow-role").await?;
        for role in operator.exceptions {
            ensure!(why.contains(&format!("--allow-role {role}")), "{role}: {why}");
        }
        let allowed = operator.exceptions.join(",");
        install(&self.cluster, home, &["--profile", "platform", "--allow-role", &allowed]).await
    }

    /// Everything is applied; what needs an image is counted as not ready, and one such object is named with its reason.
    async fn applied(&self, operator: &Operator, yaml: &str) -> Result<u64> {
        let of_kind = |kind: &str| yaml.lines().filter(|line| *line == format!("kind: {kind}")).count();
        let needs_image = u64::try_from(of_kind("Deployment") + of_kind("APIService"))?;
        eventually(DEADLINE, &format!("{} to be applied", operator.name), async || {
            match self.status(operator.name).await {
                Ok(row) if row["state"] == "degraded" && is_failed_pull(&row["reason"]) => {
                    let (ready, total) = (row["ready"].as_u64(), row["total"].as_u64().unwrap_or_default());
                    if ready == Some(total - needs_image) {
                        return Attempt::Done(total);
                    }
                    Attempt::NotYet(format!("{needs_image} objects need an image: {row:#}"))
                }
                other => Attempt::NotYet(format!("{other:#?}")),
            }
        })
        .await
    }
}

fn is_failed_pull(reason: &Value) -> bool {
    ["ErrImagePull", "ImagePullBackOff"].iter().any(|failed| reason == failed)
}

async fn manifest(name: &str) -> Result<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/operators/render.sh");
    let engines = brokkr_engines::locate()?;
    let launch = Launch::new("render.sh", script)
        .args([name])
        .env("HELM", engines.binary("helm"))
        .env("KUBECTL", engines.binary("kubectl"));
    Ok(run(launch, DEADLINE).await?.ok()?.stdout)
}

#[tokio::test]
#[ignore = "downloads the charts of seven operators, and takes several minutes; .ci/nightly runs it"]
async fn nine_operators_are_delivered_by_platform_and_refused_by_apps() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let site = Site::start().await?;
    for operator in &OPERATORS {
        let started = Instant::now();
        let yaml = manifest(operator.name).await?;
        site.refused_by_apps(operator, &yaml).await?;
        site.refused_by_the_fence(operator, &yaml).await?;
        let objects = site.applied(operator, &yaml).await?;
        let exceptions = match operator.exceptions {
            [] => "none".to_owned(),
            roles => roles.iter().map(|role| format!("`{role}`")).collect::<Vec<_>>().join(", "),
        };
        let row = format!("| {} | {} | {objects} | {exceptions} |", operator.name, operator.version);
        eprintln!("{row} {:.0?}", started.elapsed());
        ensure!(
            std::fs::read_to_string(PAGE)?.contains(&row),
            "docs/how-to/operators.md lacks this row: {row}"
        );
        site.fleet.delete(operator.name).await?;
    }
    Ok(())
}
