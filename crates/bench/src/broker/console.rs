//! The console with a whole fleet: a browser shows the matrix while the swarm is idle, and while versions reach every agent.
//!
//! The browser measures itself (`console/e2e/large.spec.ts`), and asks for what it needs: a release, and whether it has arrived.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use brokkr_api::{SequenceId, StackId};
use brokkr_swarm::{Swarm, Transport};
use brokkr_testkit::browser::{self, Specs};
use clap::Args;
use serde::Deserialize;
use sqlx::AssertSqlSafe;

use super::environment::{Engine, Environment};
use super::figures::Figures;
use super::proc::{cpu_seconds, memory_bytes};

/// The stack that is released.
const STACK: &str = "web-1";
const DATABASE_CONNECTIONS: u32 = 20;
/// Agents on one connection.
const SHARED: usize = 40;
const POLL: Duration = Duration::from_secs(120);
/// Agents that connect per second at the start.
const CONNECTS: f64 = 2_000.0;
/// A bound for every wait, which only a hang reaches.
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, Args)]
pub struct ConsoleArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Run this many agents.
    #[arg(long, default_value_t = 100_000)]
    pub agents: usize,
    /// Deliver this many stacks to each agent.
    #[arg(long, default_value_t = 50)]
    pub stacks: usize,
    /// Keep the page open for this long.
    #[arg(long, default_value = "30m", value_parser = humantime::parse_duration)]
    pub live: Duration,
    /// Also write the JSON object into this folder, named by date and commit.
    #[arg(long)]
    pub store: Option<PathBuf>,
}

/// A number that the browser has measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    key: String,
    /// The median of the rounds.
    rounds: Vec<f64>,
    at_most: Option<f64>,
    #[serde(default)]
    note: String,
}

/// Measures; see the options.
pub async fn run(args: &ConsoleArgs) -> Result<Figures> {
    if let Some(obstacle) = browser::obstacle() {
        bail!(obstacle);
    }
    let files = brokkr_swarm::files::raise()?;
    let mut figures = Figures::begin(files, format!("{args:?}"));
    let engine = Engine::start().await.context("cannot start PostgreSQL")?;
    Box::pin(measure(args, &engine, &mut figures)).await?;
    figures.end();
    if let Some(folder) = &args.store {
        figures.store(folder, "console")?;
    }
    Ok(figures)
}

async fn measure(args: &ConsoleArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Box::pin(Environment::start_with(DATABASE_CONNECTIONS, engine, &[])).await?;
    let agents = environment.enrol(args.agents).await?;
    let count = agents.len();
    let held = fill(args, &environment).await?;
    // It loads what was written directly into the tables.
    environment.broker.restart().await?;
    let mut config = environment.swarm(agents)?;
    config.held = held;
    config.transport = Transport::Shared { agents: SHARED };
    config.wait = POLL;
    config.applying = Duration::from_secs(5)..Duration::from_secs(20);
    config.start_within = Duration::from_secs_f64(count as f64 / CONNECTS);
    config.handshakes = 128;
    let begun = Instant::now();
    let swarm = Swarm::start(config)?;
    let settled = swarm.until(LONGEST, "all agents to wait", |counts| counts.waiting >= count as u64).await?;
    ensure!(settled.delivered == 0, "the swarm has to be idle: {settled:?}");
    eprintln!("  {count} agents wait after {:.0} s", begun.elapsed().as_secs_f64());

    let mut fleet = Release { environment: &environment, swarm: &swarm, agents: count as u64, versions: 0 };
    let out = environment.scratch.join("browser.json");
    let variables = vec![
        ("BROKKR_CONSOLE_URL", environment.broker.url()),
        ("BROKKR_CONSOLE_TOKEN_ADMIN", environment.token.clone()),
        ("BROKKR_CONSOLE_STACK", STACK.to_owned()),
        ("BROKKR_CONSOLE_LIVE_SECONDS", args.live.as_secs().to_string()),
        ("BROKKR_CONSOLE_FIGURES", out.display().to_string()),
    ];
    let cpu = cpu_seconds(environment.pid()?)?;
    let begun = Instant::now();
    let specs = Specs { arguments: &["--project", "large"], variables, deadline: args.live + LONGEST };
    let ran = specs.run(async |command, _| fleet.carry_out(command).await).await;
    // What was measured before a failure is worth knowing.
    let measured = std::fs::read_to_string(&out).unwrap_or_else(|_| "[]".to_owned());
    for row in serde_json::from_str::<Vec<Measured>>(&measured)? {
        let figure = figures.add_rounds(&row.key, &row.rounds).note(row.note);
        if let Some(most) = row.at_most {
            figure.at_most(most);
        }
    }
    let pid = environment.pid()?;
    let share = (cpu_seconds(pid)? - cpu) / begun.elapsed().as_secs_f64();
    figures.add("console_broker_cpu_cores", share).note(format!("{} releases to all agents", fleet.versions));
    figures.add("console_broker_rss_mib", memory_bytes(pid, "VmRSS")? / 1048576.0);
    swarm.stop().await;
    ran
}

/// Releases versions to every agent at once.
struct Release<'a, 'e> {
    environment: &'a Environment<'e>,
    swarm: &'a Swarm,
    agents: u64,
    versions: u64,
}

impl Release<'_, '_> {
    /// `release` submits a version; `arrived` waits until every agent has reported it.
    async fn carry_out(&mut self, command: &str) -> Result<String> {
        match command {
            "release" => {
                self.versions += 1;
                self.environment.submit(STACK, yaml(self.versions)).await?;
            }
            "arrived" => {
                let reports = 2 * self.agents * self.versions;
                self.swarm
                    .until(LONGEST, "all reports", |counts| {
                        counts.reports_accepted + counts.reports_refused >= reports
                    })
                    .await?;
            }
            other => return Err(anyhow!("unknown command {other:?}")),
        }
        Ok(String::new())
    }
}

fn yaml(version: u64) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {STACK}, namespace: default}}\ndata: {{version: '{version}'}}\n"
    )
}

/// Writes stacks that every agent has directly into the tables. One agent in a hundred has failed, and one in ten thousand of another
/// stack. Returns the stacks with their versions.
async fn fill(args: &ConsoleArgs, environment: &Environment<'_>) -> Result<Vec<(StackId, SequenceId)>> {
    let stacks = args.stacks;
    let statements = [
        "UPDATE agents SET labels = labels || jsonb_build_object(
            'region', 'r' || abs(hashtext(name)) % 40, 'env', (ARRAY['dev', 'stage', 'prod'])[1 + abs(hashtext(name)) % 3])"
            .to_owned(),
        format!(
            "INSERT INTO stacks (project, id, name) SELECT 'default', gen_random_uuid(), 'web-' || n
             FROM generate_series(1, {stacks}) AS n"
        ),
        "INSERT INTO stack_selectors (project, stack_id, selector) SELECT 'default', id, 'swarm=yes' FROM stacks".to_owned(),
        "INSERT INTO deployment_objects (project, stack_id, sequence_id, checksum, parsed_digest, resources, content, submitted_by)
         SELECT 'default', id, nextval('deployment_object_sequence'), sha256(name::bytea), sha256(name::bytea), 1,
                'kind: ConfigMap'::bytea, 'bench'
         FROM stacks"
            .to_owned(),
        "UPDATE stacks s SET newest_sequence_id = o.sequence_id FROM deployment_objects o WHERE o.stack_id = s.id".to_owned(),
        "INSERT INTO agent_holds (agent_id, project, stack_id, confirmed, released_sequence_id)
         SELECT a.id, 'default', s.id, true, s.newest_sequence_id FROM agents a CROSS JOIN stacks s"
            .to_owned(),
        "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, applied_sequence_id, transition, reason, message,
                                   objects, hops, ready, total, at, agent_name)
         SELECT 'default', s.id, a.id, s.newest_sequence_id, s.newest_sequence_id,
                CASE WHEN abs(hashtext(a.name || s.name)) % 10000 < s.failing THEN 'failed' ELSE 'healthy' END,
                '', '', '[]', '{}', 3, 3, now(), a.name
         FROM agents a CROSS JOIN (
            SELECT *, CASE WHEN name LIKE '%7' THEN 100 WHEN name LIKE '%3' THEN 1 ELSE 0 END AS failing FROM stacks) s"
            .to_owned(),
        "ANALYZE agents, stacks, stack_selectors, deployment_objects, agent_holds, stack_status, status_counts".to_owned(),
    ];
    super::million::execute(environment, &statements).await?;
    let rows: Vec<(uuid::Uuid, i64)> =
        sqlx::query_as(AssertSqlSafe("SELECT id, newest_sequence_id FROM stacks".to_owned()))
            .fetch_all(&environment.pool)
            .await?;
    Ok(rows.into_iter().map(|(id, sequence)| (StackId(id), SequenceId(sequence))).collect())
}
