//! A million agents in the database: a restart, previews of selectors, pages of status.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sqlx::AssertSqlSafe;

use super::args::BrokerArgs;
use super::environment::{Engine, Environment, PATIENCE};
use super::figures::{Figures, Row};
use super::proc::memory_bytes;
use crate::results::percentile;

/// The number of agents in a site. Most stacks target one site.
pub const SITE: usize = 100;
/// The time of the last poll of agents that never polled, in SQL.
pub const NEVER: &str = "NULL::timestamptz";
/// Previewed selectors, which select a fortieth, a third, and nearly all agents.
const PREVIEWS: [(&str, &str); 3] = [
    ("preview_few_p99_ms", "region%3Dr{}"),
    ("preview_third_p99_ms", "env%3Dprod,region!%3Dr{}"),
    ("preview_most_p99_ms", "tier%20notin%20(t{})"),
];
/// The number of requests for each kind of page.
const PAGES: usize = 100;

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    fill(args, &environment, NEVER).await?;
    let seconds = restart(&environment).await?;
    let note = format!("{} agents, {} stacks in the database", args.fleet, args.stacks);
    figures.add("restart_s", seconds).at_most(15.0).note(note);
    let pid = environment.pid()?;
    let rss = memory_bytes(pid, "VmRSS")?;
    figures
        .add("restart_rss_mib", rss / 1048576.0)
        .note(format!("{:.0} bytes per agent", rss / args.fleet as f64));
    figures.add("restart_peak_mib", memory_bytes(pid, "VmHWM")? / 1048576.0);
    let stack = |number: usize| number * 7919 % args.stacks + 1;
    let status = |number| format!("/api/v1/stacks/stack-{}/status?limit=500", stack(number));
    add_percentile(
        figures,
        "status_page_p99_ms",
        &pages(&environment, status).await?,
        &format!("{} rows", args.fleet),
    );
    let summary = |number| format!("/api/v1/stacks/stack-{}/status/summary", stack(number));
    add_percentile(
        figures,
        "status_summary_p99_ms",
        &pages(&environment, summary).await?,
        "counts of one stack",
    );
    let agents =
        |number: usize| format!("/api/v1/agents?limit=500&after=fleet-{}", number * 7919 % args.fleet);
    add_percentile(
        figures,
        "agents_page_p99_ms",
        &pages(&environment, agents).await?,
        &format!("{} agents", args.fleet),
    );
    let newest = |number: usize| {
        let selector = format!("env%3Dprod,region!%3Dr{}", number % 40);
        format!("/api/v1/agents?limit=500&sort=-created&count=true&selector={selector}")
    };
    add_percentile(
        figures,
        "agents_filtered_p99_ms",
        &pages(&environment, newest).await?,
        "a third, newest first, counted",
    );
    let never = |number: usize| format!("/api/v1/agents?limit=500&presence=never&name={}", number % 10);
    add_percentile(
        figures,
        "agents_presence_p99_ms",
        &pages(&environment, never).await?,
        "never seen, with a part of the name",
    );
    for (key, selectors) in PREVIEWS {
        let preview = |number: usize| {
            let selector = selectors.replace("{}", &(number % 40).to_string());
            format!("/api/v1/selectors/preview?limit=500&selector={selector}")
        };
        let what = selectors.replace("%20", " ").replace("%3D", "=");
        add_percentile(figures, key, &pages(&environment, preview).await?, &what);
    }
    environment.linger(args).await
}

/// Adds the 99th percentile, with the median in its note.
pub fn add_percentile<'a>(figures: &'a mut Figures, key: &str, seconds: &[f64], what: &str) -> Row<'a> {
    let (p99, median) = (percentile(seconds, 99) * 1e3, percentile(seconds, 50) * 1e3);
    figures.add(key, p99).note(format!("{what}; median {median:.1} ms"))
}

/// Writes the rows directly into the tables, because filling them is not measured. `last_seen` is the time of the agents' last
/// poll, in SQL.
pub async fn fill(args: &BrokerArgs, environment: &Environment<'_>, last_seen: &str) -> Result<()> {
    let (fleet, stacks) = (args.fleet, args.stacks);
    let sites = (fleet / SITE).max(1);
    let statements = [
        insert_agents(fleet, last_seen),
        format!(
            "INSERT INTO stacks (project, id, name) SELECT 'default', gen_random_uuid(), 'stack-' || n
             FROM generate_series(1, {stacks}) AS n"
        ),
        format!(
            "INSERT INTO stack_selectors (project, stack_id, selector)
             SELECT 'default', id, CASE WHEN n % 1000 = 0 THEN 'region=r' || n / 1000 % 40
                                        ELSE 'site=s' || n % {sites} END
             FROM (SELECT id, substr(name, 7)::int AS n FROM stacks) AS s"
        ),
        "INSERT INTO deployment_objects (project, stack_id, sequence_id, checksum, parsed_digest, resources, content,
                                         submitted_by)
         SELECT 'default', id, nextval('deployment_object_sequence'), sha256(name::bytea), sha256(name::bytea), 1,
                ('apiVersion: v1' || chr(10) || 'kind: ConfigMap' || chr(10) || 'metadata:' || chr(10) || '  name: '
                 || name)::bytea, 'bench'
         FROM stacks"
            .to_owned(),
        "UPDATE stacks s SET newest_sequence_id = o.sequence_id
         FROM deployment_objects o WHERE o.project = s.project AND o.stack_id = s.id"
            .to_owned(),
        format!(
            "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, transition, reason, message, objects,
                                       hops, ready, total, at, agent_name)
             SELECT 'default', s.id, a.id, s.newest_sequence_id, 'healthy', '', '', '[]',
                    jsonb_build_object('reported', now()), 3, 3, now(), a.name
             FROM (SELECT id, newest_sequence_id, substr(name, 7)::int % {sites} AS site FROM stacks) AS s
             JOIN (SELECT id, name, substr(name, 7)::int / {SITE} AS site FROM agents) AS a USING (site)"
        ),
        // Without names, ANALYZE would include the catalogs that all databases share.
        "ANALYZE agents, stacks, stack_targets, stack_selectors, agent_holds, deployment_objects, stack_status"
            .to_owned(),
    ];
    execute(environment, &statements).await
}

/// Returns the statement that adds agents with a few labels.
pub fn insert_agents(fleet: usize, last_seen: &str) -> String {
    format!(
        "INSERT INTO agents (id, name, status, labels, public_key, session_count, last_seen_at)
         SELECT gen_random_uuid(), 'fleet-' || n, 'ACTIVE',
                jsonb_build_object('env', (ARRAY['dev', 'stage', 'prod'])[1 + n % 3], 'region', 'r' || n % 40,
                                   'tier', 't' || n % 7, 'site', 's' || n / {SITE}),
                sha256(n::text::bytea), 1, {last_seen}
         FROM generate_series(0, {fleet} - 1) AS n"
    )
}

/// Executes statements, and prints how long each took.
pub async fn execute(environment: &Environment<'_>, statements: &[String]) -> Result<()> {
    let mut connection = environment.pool.acquire().await?;
    for statement in statements {
        let begun = Instant::now();
        sqlx::query(AssertSqlSafe(statement.clone()))
            .execute(&mut *connection)
            .await
            .with_context(|| format!("cannot fill the database: {statement}"))?;
        let what: String = statement.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        eprintln!("  {what} {:.1} s", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Restarts the broker, and returns the seconds until it is ready.
pub async fn restart(environment: &Environment<'_>) -> Result<f64> {
    environment.broker.kill9();
    let begun = Instant::now();
    environment.broker.process().start_again()?;
    let url = format!("{}/readyz", environment.broker.url());
    loop {
        let answer = environment.broker.http().get(&url).timeout(Duration::from_secs(5)).send().await;
        if answer.is_ok_and(|answer| answer.status().is_success()) {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "not ready: {}", environment.broker.log_tail(20));
        ensure!(environment.broker.is_running(), "it ended: {}", environment.broker.log_tail(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Sends requests one after the other, and returns the seconds of each.
pub async fn pages(environment: &Environment<'_>, path: impl Fn(usize) -> String) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(PAGES);
    for number in 0..PAGES {
        let url = format!("{}{}", environment.broker.url(), path(number));
        let begun = Instant::now();
        let answer = environment.broker.http().get(&url).bearer_auth(&environment.token).send().await?;
        let (status, body) = (answer.status(), answer.text().await?);
        seconds.push(begun.elapsed().as_secs_f64());
        ensure!(status.is_success(), "GET {url}: {status} {body}");
    }
    Ok(seconds)
}
