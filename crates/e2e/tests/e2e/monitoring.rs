//! Dashboards, alerts and their pages, on a real Prometheus that scrapes a broker and agents under load.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::prometheus::{Prometheus, Target, promtool};
use brokkr_testkit::{
    AgentOptions, Attempt, Cluster, Fleet, Launch, Port, Process, Scratch, eventually, programs,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use brokkr_testkit::world::{WAIT_TIMEOUT, World, config_map_yaml};

/// The number of simulated agents, in addition to those with a cluster.
const SWARM: usize = 100;
const EDITS: u32 = 10;
/// Rates need several scrapes, and deliveries between them.
const LOAD_TIMEOUT: Duration = Duration::from_secs(180);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn rules_file() -> PathBuf {
    repository().join("deploy/monitoring/rules.yaml")
}

fn listening(port: &Port) -> AgentOptions {
    AgentOptions { arguments: vec!["--admin-listen".into(), port.address()], ..AgentOptions::default() }
}

/// Gets a path of an admin listener.
async fn get(port: &Port, path: &str) -> Result<(u16, String)> {
    let client = reqwest::Client::builder().no_proxy().timeout(WAIT_TIMEOUT).build()?;
    let answer = client.get(format!("http://{}{path}", port.address())).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

async fn ready(port: &Port) -> Result<()> {
    eventually(WAIT_TIMEOUT, "the agent to be ready", async || match get(port, "/readyz").await {
        Ok((200, _)) => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await
}

#[tokio::test]
async fn every_alert_is_valid_and_fires_when_it_should_and_only_then() -> Result<()> {
    let folder = repository().join("deploy/monitoring");
    promtool(&folder, &["check", "rules", "rules.yaml"]).await?.ok()?;
    promtool(&folder, &["test", "rules", "rules.test.yaml"]).await?.ok()?;
    let tests = fs::read_to_string(folder.join("rules.test.yaml"))?;
    for alert in alerts()? {
        ensure!(tests.contains(&format!("  - name: {alert}\n")), "no test of {alert}");
    }
    Ok(())
}

#[test]
fn f7_every_alert_has_a_delay_and_a_runbook_and_every_runbook_has_an_alert() -> Result<()> {
    let pages: BTreeSet<String> = fs::read_dir(repository().join("docs/runbooks"))?
        .map(|page| Ok(page?.file_name().to_string_lossy().trim_end_matches(".md").to_owned()))
        .collect::<Result<_>>()?;
    assert_eq!(alerts()?, pages);
    let rules = fs::read_to_string(rules_file())?;
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().context("a name")?;
        assert!(rule.contains(&format!("runbook_url: docs/runbooks/{name}.md")), "{name}");
        assert!(rule.contains("\n        for: "), "{name} would fire at once");
        assert!(rule.contains("severity: critical") || rule.contains("severity: warning"), "{name}");
        let page = fs::read_to_string(repository().join(format!("docs/runbooks/{name}.md")))?;
        for part in ["Meaning", "Impact", "First commands", "Fix", "Escalate"] {
            assert!(page.contains(&format!("\n## {part}\n\n")), "{name} has no section {part}");
        }
    }
    Ok(())
}

fn alerts() -> Result<BTreeSet<String>> {
    let rules = fs::read_to_string(rules_file())?;
    Ok(rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect())
}

#[tokio::test]
async fn reading_an_agents_metrics_causes_no_request_to_the_api_server() -> Result<()> {
    let port = Port::free()?;
    let world = World::start_with(&listening(&port)).await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    ready(&port).await?;
    let mark = world.cluster.audit().mark()?;
    for _ in 0..50 {
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(get(&port, path).await?.0, 200);
        }
    }
    let requests = world.agent.requests(mark)?;
    let others: Vec<_> = requests.iter().filter(|request| !request.is_watch()).collect();
    assert!(others.is_empty(), "{others:?}");
    Ok(())
}

/// A fleet under load: two agents with clusters, a hundred simulated ones, deliveries, failures and a contested field.
struct Load {
    world: World,
    _other: brokkr_testkit::Agent,
    ports: [Port; 3],
    _swarm: Process,
    _scratch: Scratch,
    round: u32,
}

impl Load {
    async fn start() -> Result<Self> {
        let ports = [Port::free()?, Port::free()?, Port::free()?];
        let cluster = Cluster::shared().await?;
        let fleet = Fleet::start_with(&["--admin-listen", &ports[0].address()]).await?;
        let agent = fleet.join_with("shop-1", &[("env", "prod")], &cluster, &listening(&ports[1])).await?;
        let other = fleet.join_with("shop-2", &[("env", "test")], &cluster, &listening(&ports[2])).await?;
        let scratch = Scratch::new("swarm")?;
        let swarm = Launch::new("brokkr-swarm", programs::program("brokkr-swarm")?)
            .args(["--broker", &fleet.broker.url(), "--ca"])
            .arg(fleet.broker.authority_file())
            .args(["--database-url", &fleet.database().url(), "--agents", &SWARM.to_string()])
            .args(["--label", "env=swarm", "--applying", "500ms", "--fail", "0.05", "--start-within", "2s"]);
        let swarm = Process::start(swarm, scratch.path())?;
        let world = World::of(agent, fleet, cluster).await?;
        Ok(Self { world, _other: other, ports, _swarm: swarm, _scratch: scratch, round: 0 })
    }

    fn targets(&self) -> Vec<Target> {
        let agent = |port: &Port, cluster: &str| Target {
            job: "brokkr-agent",
            address: port.address(),
            labels: vec![("cluster", cluster.to_owned())],
        };
        let broker = Target { job: "brokkr", address: self.ports[0].address(), labels: Vec::new() };
        vec![broker, agent(&self.ports[1], "east"), agent(&self.ports[2], "west")]
    }

    /// Submits another version of everything and one that cannot be applied, and edits an object by hand.
    async fn round(&mut self) -> Result<()> {
        self.round += 1;
        let (world, value) = (&self.world, self.round.to_string());
        world.fleet.submit("web", "env=prod", &world.manifest(&[("one", &value), ("two", "2")])).await?;
        // The next version comes before a rollout would be complete.
        let swarm = config_map_yaml("swarm", "one", &value);
        world.fleet.submit_at_once("everywhere", "env=swarm", &swarm).await?;
        world
            .fleet
            .submit("lost", "env=test", &config_map_yaml("nowhere-to-be-found", "one", &value))
            .await?;
        world.wait_for_value("one", &value).await?;
        // More edits would count as a contest and be slowed down.
        if self.round > EDITS {
            return Ok(());
        }
        let edit = Patch::Merge(json!({"data": {"value": "mine"}}));
        world.config_maps().patch("one", &PatchParams::default(), &edit).await?;
        world.wait_for_value("one", &value).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_and_alert_has_data_in_a_prometheus_that_scrapes_a_fleet_under_load() -> Result<()> {
    let mut load = Load::start().await?;
    let prometheus = Prometheus::start(&load.targets(), &rules_file()).await?;
    for port in &load.ports[1..] {
        ready(port).await?;
    }
    let mut unanswered = expressions()?;
    ensure!(unanswered.len() > 60, "only {} expressions: {unanswered:?}", unanswered.len());
    let deadline = tokio::time::Instant::now() + LOAD_TIMEOUT;
    while !unanswered.is_empty() {
        ensure!(tokio::time::Instant::now() < deadline, "no data for {unanswered:#?}");
        load.round().await?;
        let mut still = BTreeMap::new();
        for (expression, locations) in unanswered {
            if prometheus.ever(&expression).await.with_context(|| format!("{locations:?}"))?.is_empty() {
                still.insert(expression, locations);
            }
        }
        unanswered = still;
    }
    agents_expose_documented_metrics_and_no_names(&load).await?;
    fleet_is_counted(&load, &prometheus).await?;

    let evaluated = eventually(WAIT_TIMEOUT, "every rule to be evaluated", async || {
        let rules = prometheus.rules().await?;
        let pending = rules.iter().filter(|rule| rule["health"] == "unknown").count();
        if pending == 0 { Ok(rules) } else { anyhow::bail!("{pending} rules are not evaluated yet") }
    })
    .await?;
    assert_eq!(evaluated.len(), alerts()?.len());
    for rule in &evaluated {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_ne!(rule["state"], "firing", "a problem that lasts a minute fires no alert: {rule}");
    }
    Ok(())
}

/// Returns every expression of dashboards and alerts, with its location.
fn expressions() -> Result<BTreeMap<String, Vec<String>>> {
    let mut expressions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in fs::read_dir(repository().join("deploy/monitoring/dashboards"))? {
        let path = file?.path();
        let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let panels = dashboard["panels"].as_array().context("panels")?;
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let targets = panel["targets"].as_array().context("targets of a panel")?;
            ensure!(!targets.is_empty(), "{panel} has no query");
            for target in targets {
                let expression = target["expr"].as_str().context("an expression")?;
                let location = format!("{name}: {}", panel["title"]);
                expressions.entry(with_all_variables(expression)).or_default().push(location);
            }
        }
        for variable in dashboard["templating"]["list"].as_array().context("variables")? {
            let Some(definition) = variable["definition"].as_str() else { continue };
            let values = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (series, label) =
                values.and_then(|values| values.rsplit_once(", ")).context("label_values")?;
            let named = match series.strip_suffix('}') {
                Some(matchers) => format!("{matchers}, {label}!=\"\"}}"),
                None => format!("{series}{{{label}!=\"\"}}"),
            };
            let expression = format!("count by ({label}) ({})", with_all_variables(&named));
            expressions.entry(expression).or_default().push(format!("{name}: variable {label}"));
        }
    }
    // An alert that does not fire has no data, but its metrics must exist.
    for metric in metric_names(&fs::read_to_string(rules_file())?) {
        expressions.entry(metric).or_default().push("alerts".into());
    }
    Ok(expressions)
}

/// Returns the expression with every variable set to "All".
fn with_all_variables(expression: &str) -> String {
    let mut text = expression.replace("$__rate_interval", "30s");
    for variable in ["$job", "$cluster", "$instance"] {
        text = text.replace(variable, ".*");
    }
    text
}

/// Returns the names of the metrics in the expressions of the rules.
fn metric_names(rules: &str) -> BTreeSet<String> {
    let words = rules.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("brokkr_")).map(str::to_owned).collect()
}

async fn agents_expose_documented_metrics_and_no_names(load: &Load) -> Result<()> {
    let mut types_found = BTreeSet::new();
    for port in &load.ports[1..] {
        let (_, text) = get(port, "/metrics").await?;
        for name in ["shop-1", "web", "lost", &load.world.namespace, "ConfigMap"] {
            assert!(!text.contains(&format!("\"{name}\"")), "{name} became a label: {text}");
        }
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        types_found.extend(types.map(str::to_owned));
    }
    let page = fs::read_to_string(repository().join("docs/metrics.md"))?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<String> =
        rows.filter(|name| name.starts_with("brokkr_agent_")).map(str::to_owned).collect();
    assert_eq!(types_found, documented);
    Ok(())
}

/// Checks that the broker's metrics match the fleet.
async fn fleet_is_counted(load: &Load, prometheus: &Prometheus) -> Result<()> {
    let all = SWARM + 2;
    eventually(WAIT_TIMEOUT, "all agents to be counted as fresh", async || {
        let fresh = metric(load, "brokkr_agents{status=\"ACTIVE\",presence=\"fresh\"}").await;
        if fresh == Some(all.to_string()) { Attempt::Done(()) } else { Attempt::NotYet(format!("{fresh:?}")) }
    })
    .await?;
    let healthy =
        format!("max_over_time(brokkr_placements{{state=\"healthy\"}}[{}s]) > 50", LOAD_TIMEOUT.as_secs());
    let failed =
        format!("max_over_time(brokkr_placements{{state=\"failed\"}}[{}s]) > 0", LOAD_TIMEOUT.as_secs());
    for expression in [healthy, failed] {
        assert!(!prometheus.ever(&expression).await?.is_empty(), "{expression}");
    }
    Ok(())
}

async fn metric(load: &Load, series: &str) -> Option<String> {
    let (_, text) = get(&load.ports[0], "/metrics").await.ok()?;
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')).map(str::to_owned)
}
