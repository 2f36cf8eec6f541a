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
use super::million::{execute, restart};
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
/// Time for the other specs.
const SPECS_OVERHEAD: Duration = Duration::from_secs(1200);

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
    /// Also write pictures of the matrix into this folder.
    #[arg(long)]
    pub pictures: Option<PathBuf>,
    /// Also write the JSON object into this folder, named by date and commit.
    #[arg(long)]
    pub store: Option<PathBuf>,
}

/// A number that the browser has measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    key: String,
    rounds: Vec<f64>,
    judge: Judged,
    at_most: Option<f64>,
    #[serde(default)]
    note: String,
}

/// Which round is compared with the bound.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Judged {
    Median,
    /// Every round must stay within it.
    Max,
}

/// Measures; see the options.
pub async fn run(args: &ConsoleArgs) -> Result<Figures> {
    if let Some(obstacle) = browser::obstacle() {
        bail!(obstacle);
    }
    let files = brokkr_swarm::files::raise()?;
    let mut figures = Figures::begin(files, format!("{args:?}"));
    let engine = Engine::start().await.context("cannot start PostgreSQL")?;
    let measured = Box::pin(measure(args, &engine, &mut figures)).await;
    figures.end();
    measured.with_context(|| format!("measured before the failure:\n{}", figures.to_table()))?;
    if let Some(folder) = &args.store {
        figures.store(folder, "console")?;
    }
    Ok(figures)
}

async fn measure(args: &ConsoleArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Box::pin(Environment::start_with(DATABASE_CONNECTIONS, engine, &[])).await?;
    let agents = environment.enrol(args.agents).await?;
    let count = agents.len();
    let agent = format!("swarm-1-{}", count / 2);
    let held = fill(args, &environment).await?;
    // It loads what was written directly into the tables.
    restart(&environment).await?;
    let mut config = environment.swarm(agents)?;
    config.held = held;
    config.transport = Transport::Shared { agents: SHARED };
    config.wait = POLL;
    // Below the rate at which one replica stores reports, so that the page is measured and not a backlog.
    config.applying = Duration::from_secs(10)..Duration::from_secs(120);
    config.start_within = Duration::from_secs_f64(count as f64 / CONNECTS);
    config.handshakes = 128;
    let begun = Instant::now();
    let swarm = Swarm::start(config)?;
    let settled = swarm.until(LONGEST, "all agents to wait", |counts| counts.waiting >= count as u64).await?;
    ensure!(settled.delivered == 0, "the swarm has to be idle: {settled:?}");
    eprintln!("  {count} agents wait after {:.0} s", begun.elapsed().as_secs_f64());

    let mut fleet = Release { environment: &environment, swarm: &swarm, agents: count as u64, versions: 0 };
    let out = environment.scratch.join("browser.json");
    let mut variables = vec![
        ("BROKKR_CONSOLE_URL", environment.broker.url()),
        ("BROKKR_CONSOLE_TOKEN_ADMIN", environment.token.clone()),
        ("BROKKR_CONSOLE_STACK", STACK.to_owned()),
        ("BROKKR_CONSOLE_AGENT", agent),
        ("BROKKR_CONSOLE_LIVE_SECONDS", args.live.as_secs().to_string()),
        ("BROKKR_CONSOLE_FIGURES", out.display().to_string()),
    ];
    if let Some(folder) = &args.pictures {
        // The specs run in another folder.
        variables.push(("BROKKR_CONSOLE_PICTURES", std::path::absolute(folder)?.display().to_string()));
    }
    let cpu = cpu_seconds(environment.pid()?)?;
    let begun = Instant::now();
    let specs = Specs {
        arguments: &["--project", "large"],
        variables,
        deadline: args.live + LONGEST + SPECS_OVERHEAD,
    };
    let ran = specs.run(async |command, _| fleet.carry_out(command).await).await;
    let measured = std::fs::read_to_string(&out).unwrap_or_else(|_| "[]".to_owned());
    for row in serde_json::from_str::<Vec<Measured>>(&measured)? {
        let figure = match row.judge {
            Judged::Median => figures.add_rounds(&row.key, &row.rounds),
            Judged::Max => figures.add_worst(&row.key, &row.rounds),
        };
        let figure = figure.note(row.note);
        if let Some(most) = row.at_most {
            figure.at_most(most);
        }
    }
    ran?;
    let pid = environment.pid()?;
    let share = (cpu_seconds(pid)? - cpu) / begun.elapsed().as_secs_f64();
    figures.add("console_broker_cpu_cores", share).note(format!("{} releases to all agents", fleet.versions));
    figures.add("console_broker_rss_mib", memory_bytes(pid, "VmRSS")? / 1048576.0);
    swarm.stop().await;
    Ok(())
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
                        // Duplicate: stored before, but the response was lost.
                        counts.reports_accepted + counts.reports_refused + counts.reports_duplicate >= reports
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

/// Writes stacks that every agent has directly into the tables. Of some stacks, one agent in a hundred has failed, and of others one in
/// ten thousand, for one of three reasons. Returns the stacks with their versions.
async fn fill(args: &ConsoleArgs, environment: &Environment<'_>) -> Result<Vec<(StackId, SequenceId)>> {
    let stacks = args.stacks;
    let statements = [
        "UPDATE agents SET labels = labels || jsonb_build_object(
            'region', (ARRAY['eu', 'us', 'ap', 'sa'])[1 + hash % 4] || '-' || 1 + hash / 4 % 10,
            'env', (ARRAY['dev', 'stage', 'prod'])[1 + hash % 3])
         FROM (SELECT id, hashtext(name) & 2147483647 AS hash FROM agents) AS h WHERE h.id = agents.id"
            .to_owned(),
        format!(
            "INSERT INTO stacks (project, id, name)
             SELECT 'default', gen_random_uuid(),
                    (ARRAY['search', 'web', 'payments', 'cart', 'catalog', 'billing', 'login', 'orders', 'prices', 'stock'])[1 + n % 10]
                    || '-' || n
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
        "INSERT INTO reasons (project, key, reason)
         SELECT 'default', sha256(reason::bytea), reason
         FROM unnest(ARRAY['FetchFailed', 'Unreadable', 'ContentCacheFailed']) AS reason"
            .to_owned(),
        "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, applied_sequence_id, transition, reason, reason_key,
                                   message, objects, hops, ready, total, at, agent_name)
         SELECT 'default', p.stack_id, p.agent_id, p.sequence_id, p.sequence_id, coalesce(p.failed, 'healthy'),
                CASE WHEN p.failed IS NULL THEN '' ELSE r.reason END, CASE WHEN p.failed IS NULL THEN NULL ELSE r.key END,
                '', '[]', '{}', 3, 3, now(), p.agent_name
         FROM (SELECT s.id AS stack_id, a.id AS agent_id, s.newest_sequence_id AS sequence_id, a.name AS agent_name,
                      hash % 3 AS reason_number, CASE WHEN hash % 10000 < s.failing THEN 'failed' END AS failed
               FROM agents a CROSS JOIN (
                    SELECT *, CASE WHEN name LIKE '%7' THEN 100 WHEN name LIKE '%3' THEN 1 ELSE 0 END AS failing FROM stacks) s
               CROSS JOIN LATERAL (SELECT hashtext(a.name || s.name) & 2147483647 AS hash) h) p
         JOIN (SELECT *, row_number() OVER (ORDER BY reason) - 1 AS number FROM reasons) r ON r.number = p.reason_number"
            .to_owned(),
        "ANALYZE agents, stacks, stack_selectors, deployment_objects, agent_holds, stack_status, status_counts".to_owned(),
    ];
    execute(environment, &statements).await?;
    let rows: Vec<(uuid::Uuid, i64)> =
        sqlx::query_as(AssertSqlSafe("SELECT id, newest_sequence_id FROM stacks".to_owned()))
            .fetch_all(&environment.pool)
            .await?;
    Ok(rows.into_iter().map(|(id, sequence)| (StackId(id), SequenceId(sequence))).collect())
}
