//! What the specs look at: two clusters with real Pods, and stacks in several states.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::postgres::{Backup, Durability, Server};
use brokkr_testkit::process::{ShowLog, run};
use brokkr_testkit::programs::program;
use brokkr_testkit::{Agent, Cluster, Fleet, Launch, Output, Postgres, TcpProxy, broker, eventually};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(120);
const ROLES: [(&str, &str); 4] = [
    ("viewer", "BROKKR_CONSOLE_TOKEN_VIEWER"),
    ("deployer", "BROKKR_CONSOLE_TOKEN_DEPLOYER"),
    ("owner", "BROKKR_CONSOLE_TOKEN_OWNER"),
    ("admin", "BROKKR_CONSOLE_TOKEN_ADMIN"),
];
/// The stack with a version that fails, and the agent that has it.
const STACK: &str = "web";
const CANARY: &str = "eu-1";
const OTHER: &str = "us-1";
/// Without a key, the broker stores no webhooks.
const SECRET_KEY: &str = "--secret-key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
/// Enough that a version with few of them deletes more than is allowed without approval.
const SETTINGS: usize = 60;

pub struct Lab {
    // Dropped in this order: the agents before the broker, the broker before its database.
    proxy: TcpProxy,
    _agents: [Agent; 2],
    fleet: Fleet,
    postgres: Arc<Postgres>,
    _clusters: [Cluster; 2],
    tokens: Vec<(&'static str, String)>,
    rollout: u64,
    backup: Option<Backup>,
}

impl Lab {
    pub async fn start() -> Result<Self> {
        let (first, second, (fleet, postgres)) =
            tokio::try_join!(Cluster::with_real_nodes(1), Cluster::with_real_nodes(1), fleet())?;
        let regions = [(CANARY, "eu", "canary", &first), (OTHER, "us", "stable", &second)];
        let [one, two] = regions.map(async |(name, region, tier, cluster)| {
            fleet.join(name, &[("env", "prod"), ("region", region), ("tier", tier)], cluster).await
        });
        let agents = tokio::try_join!(one, two)?;
        let mut tokens = Vec::new();
        for (role, variable) in ROLES {
            let output = fleet.brokkr(["token", "create", role, "--role", role]).await?.ok()?;
            tokens.push((variable, output.stdout.trim().to_owned()));
        }
        let proxy = TcpProxy::start(vec![([127, 0, 0, 1], fleet.broker.port()).into()], 0).await?;
        let mut lab = Self {
            proxy,
            _agents: agents.into(),
            fleet,
            postgres,
            _clusters: [first, second],
            tokens,
            rollout: 0,
            backup: None,
        };
        lab.fill().await?;
        Ok(lab)
    }

    /// Delivers a stack that is healthy, one whose new version fails on the first agent, and one that waits for an approval.
    async fn fill(&mut self) -> Result<()> {
        let fleet = &self.fleet;
        fleet.apply("payments", "env=prod", &deployment("payments", "--serve=:8080")).await?;
        fleet.apply("settings", "env=prod", &settings(SETTINGS)).await?;
        fleet.submit("settings", "env=prod", &settings(4)).await?;
        fleet.apply(STACK, "env=prod", &deployment(STACK, "--serve=:8080")).await?;
        let bad = deployment(STACK, "--say=no DATABASE_URL, --exit=3");
        let stopped = fleet.try_apply(STACK, "env=prod", &bad, "5m").await?;
        ensure!(stopped.code == 3, "the version has to fail on {CANARY}: {stopped:?}");
        let stack = fleet.get(&format!("/api/v1/stacks/{STACK}")).await?;
        self.rollout = stack["sequence_id"].as_u64().with_context(|| format!("{stack:#}"))?;
        eventually(DEADLINE, "a prune to wait for an approval on both agents", async || {
            let status = fleet.get("/api/v1/stacks/settings/status").await?;
            let waiting = status["items"].as_array().map_or(0, |items| {
                items.iter().filter(|item| item["reason"] == "PruneNeedsApproval").count()
            });
            ensure!(waiting == 2, "{status:#}");
            anyhow::Ok(())
        })
        .await
    }

    /// Returns the variables that the specs read.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = self.tokens.clone();
        variables.push(("BROKKR_CONSOLE_URL", format!("https://{}", self.proxy.address())));
        variables.push(("BROKKR_CONSOLE_STACK", STACK.to_owned()));
        variables.push(("BROKKR_CONSOLE_AGENT", CANARY.to_owned()));
        // The Pod of the version before goes on.
        variables.push(("BROKKR_CONSOLE_STATE", "degraded".to_owned()));
        variables.push(("BROKKR_CONSOLE_ROLLOUT", self.rollout.to_string()));
        variables
    }

    /// Carries out a command of a spec, and returns its output.
    pub async fn carry_out(&mut self, command: &str, body: &str) -> Result<String> {
        match command {
            "kill" => self.fleet.broker.kill9(),
            "start" if !self.fleet.broker.is_running() => self.fleet.broker.start_again().await?,
            "start" => {}
            "cut" => self.proxy.cut(),
            "revoke" => {
                let body: Value = serde_json::from_str(body)?;
                let token = body["token"].as_str().context("the id of a token")?;
                self.fleet.brokkr(["token", "revoke", token, "--yes"]).await?.ok()?;
            }
            "why" => return Ok(self.fleet.brokkr(["why", STACK, "--agent", CANARY]).await?.ok()?.stdout),
            "back-up" => self.backup = Some(self.server()?.back_up().await?),
            "restore" => self.restore().await?,
            "raise" => {
                let url = self.fleet.database().url();
                broker_command(&["epoch", "raise", "--database-url", &url]).await?;
            }
            other => bail!("unknown command {other:?}"),
        }
        Ok(String::new())
    }

    /// Delivers one more version, and restores the database as it was before: agents have seen what the broker has lost.
    async fn restore(&self) -> Result<()> {
        self.fleet.apply("payments", "env=prod", &deployment("payments", "--serve=:8081")).await?;
        let backup = self.backup.as_ref().context("there is no back-up")?;
        self.fleet.broker.kill9();
        self.server()?.restore(backup).await?;
        self.fleet.broker.start_again().await?;
        eventually(DEADLINE, "the broker to be on hold", async || {
            let system = self.fleet.get("/api/v1/system").await?;
            ensure!(!system["hold"].is_null(), "{system:#}");
            anyhow::Ok(())
        })
        .await
    }

    fn server(&self) -> Result<&Server> {
        self.postgres.server().context("the server is not its own")
    }
}

/// Starts a broker on a PostgreSQL that can be restored. New versions begin on the first agent.
async fn fleet() -> Result<(Fleet, Arc<Postgres>)> {
    let postgres = Arc::new(Postgres::start_with(Durability::Full).await?);
    let fleet = Fleet::start_on_with(Arc::clone(&postgres), ShowLog::Always, &[SECRET_KEY]).await?;
    let policy = json!({ "waves": [{ "match": "tier=canary", "size": "100%" }], "soak_seconds": 0 });
    broker::policy_set(&fleet.database().url(), &policy).await?;
    Ok((fleet, postgres))
}

async fn broker_command(arguments: &[&str]) -> Result<Output> {
    run(Launch::new("brokkr-broker", program("brokkr-broker")?).args(arguments), DEADLINE).await?.ok()
}

fn deployment(name: &str, arguments: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {name}}}\ndata: {{LOG_LEVEL: info}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {name}}}\n\
         spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8080}}]}}\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: {name}}}\n\
         spec: {{replicas: 1, selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, \
         spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: app, image: '{TEST_PROGRAM}', args: [{arguments}]}}]}}}}}}\n"
    )
}

/// A namespace with this many ConfigMaps.
fn settings(count: usize) -> String {
    let mut yaml = "apiVersion: v1\nkind: Namespace\nmetadata: {name: settings}\n".to_owned();
    for number in 1..=count {
        let _ = write!(
            yaml,
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: region-{number}, namespace: settings}}\ndata: {{currency: EUR}}\n"
        );
    }
    yaml
}
