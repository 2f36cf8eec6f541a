//! Views of a fleet of which every agent has reported on every stack: how long they take, what they need in memory, and whether a
//! restart takes longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use brokkr_api::fleet::FleetMatrix;
use brokkr_testkit::{broker, eventually};
use serde_json::json;

use super::args::BrokerArgs;
use super::environment::{Engine, Environment, PATIENCE};
use super::figures::{Figures, median};
use super::million::{NEVER, SITE, add_percentile, execute, insert_agents, pages, restart};
use super::proc::memory_bytes;

/// Restarts with reports, and without.
const RESTARTS: usize = 3;

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    fill(args, &environment).await?;
    let with_reports = restarts(&environment).await?;
    let loading = Instant::now();
    let serving_memory = memory_bytes(environment.pid()?, "VmRSS")?;
    loaded(&environment).await?;
    let pairs = format!("{} agents, {} stacks", args.view_agents, args.view_stacks);
    figures.add("views_loaded_s", loading.elapsed().as_secs_f64()).note("after the broker was ready");
    let memory = memory_bytes(environment.pid()?, "VmRSS")? - serving_memory;
    figures.add("views_memory_mib", memory / 1048576.0).note(pairs.clone());

    let busy = Busy::begin();
    // Each selector is another view, so that none is answered from the one before.
    let sites = (args.view_agents / SITE).max(1);
    let matrix = |first: usize| {
        move |number: usize| {
            format!("/api/v1/fleet/matrix?by=region&selector=site!%3Ds{}", (first + number) % sites)
        }
    };
    let seconds = pages(&environment, matrix(0)).await?;
    add_percentile(figures, "views_matrix_p99_ms", &seconds, &format!("{pairs}; both cores are busy"))
        .at_most(20.0);
    drop(busy);
    let seconds = pages(&environment, matrix(sites / 2)).await?;
    add_percentile(figures, "views_matrix_idle_p99_ms", &seconds, &pairs);
    let summary = |_| "/api/v1/fleet/summary".to_owned();
    add_percentile(figures, "views_summary_p99_ms", &pages(&environment, summary).await?, &pairs);
    let search = |number: usize| format!("/api/v1/search?q=fleet-{}", number * 7919 % args.view_agents);
    add_percentile(figures, "views_search_p99_ms", &pages(&environment, search).await?, &pairs).at_most(50.0);
    let labels = |_| "/api/v1/labels".to_owned();
    add_percentile(figures, "views_labels_p99_ms", &pages(&environment, labels).await?, &pairs);
    let failing = |number: usize| {
        let stack = number % args.view_stacks + 1;
        format!("/api/v1/stacks/stack-{stack}/status?limit=500&state=failed&count=true&sort=-name")
    };
    add_percentile(
        figures,
        "views_filtered_p99_ms",
        &pages(&environment, failing).await?,
        "failed agents of a stack",
    );

    roll_out(args, &environment).await?;
    let seconds = pages(&environment, matrix(sites / 4)).await?;
    let what = format!("{pairs}; each stack has a rollout, and one region a window");
    add_percentile(figures, "views_matrix_rollout_p99_ms", &seconds, &what);

    execute(&environment, &["TRUNCATE stack_status, status_counts".to_owned()]).await?;
    let without = restarts(&environment).await?;
    figures
        .add("views_restart_ratio", with_reports / without)
        .at_most(1.2)
        .note(format!("{with_reports:.2} s with reports, {without:.2} s without"));
    environment.linger(args).await
}

/// Returns the median of the seconds that a restart takes.
async fn restarts(environment: &Environment<'_>) -> Result<f64> {
    // The first one reads what PostgreSQL does not have in memory yet.
    restart(environment).await?;
    let mut seconds = Vec::new();
    for _ in 0..RESTARTS {
        seconds.push(restart(environment).await?);
    }
    Ok(median(seconds))
}

/// Waits until the broker has loaded what agents have reported.
async fn loaded(environment: &Environment<'_>) -> Result<()> {
    let url = format!("{}/api/v1/fleet/matrix", environment.broker.url());
    eventually(PATIENCE, "the views to be complete", async || {
        let answer = environment.broker.http().get(&url).bearer_auth(&environment.token).send().await?;
        let matrix: FleetMatrix = answer.error_for_status()?.json().await?;
        ensure!(matrix.freshness.complete, "{:?}", matrix.freshness);
        anyhow::Ok(())
    })
    .await
}

/// Writes the rows directly into the tables: one agent in a hundred has failed, and one in ten has an older version.
async fn fill(args: &BrokerArgs, environment: &Environment<'_>) -> Result<()> {
    let stacks = args.view_stacks;
    let object = |version: &str| {
        format!(
            "INSERT INTO deployment_objects (project, stack_id, sequence_id, checksum, parsed_digest, resources, content,
                                             submitted_by)
             SELECT 'default', id, nextval('deployment_object_sequence'), sha256((name || '{version}')::bytea),
                    sha256(name::bytea), 1, 'kind: ConfigMap'::bytea, 'bench'
             FROM stacks"
        )
    };
    let statements = [
        insert_agents(args.view_agents, NEVER),
        format!(
            "INSERT INTO stacks (project, id, name) SELECT 'default', gen_random_uuid(), 'stack-' || n
             FROM generate_series(1, {stacks}) AS n"
        ),
        "INSERT INTO stack_selectors (project, stack_id, selector) SELECT 'default', id, '*' FROM stacks".to_owned(),
        object("1"),
        object("2"),
        "UPDATE stacks s SET newest_sequence_id = o.newest
         FROM (SELECT stack_id, max(sequence_id) AS newest FROM deployment_objects GROUP BY 1) o WHERE o.stack_id = s.id"
            .to_owned(),
        "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, transition, reason, message, objects,
                                   hops, ready, total, at, agent_name)
         SELECT 'default', s.id, a.id, CASE WHEN random() < 0.1 THEN s.oldest ELSE s.newest_sequence_id END,
                CASE WHEN random() < 0.01 THEN 'failed' ELSE 'healthy' END, '', '', '[]', '{}', 3, 3, now(), a.name
         FROM agents a CROSS JOIN (
            SELECT s.id, s.newest_sequence_id, min(o.sequence_id) AS oldest
            FROM stacks s JOIN deployment_objects o ON o.stack_id = s.id GROUP BY 1, 2) s"
            .to_owned(),
        "ANALYZE agents, stacks, stack_selectors, deployment_objects, stack_status, status_counts".to_owned(),
    ];
    execute(environment, &statements).await
}

/// Begins the rollout of a third version of each stack, with a window for one of the regions.
async fn roll_out(args: &BrokerArgs, environment: &Environment<'_>) -> Result<()> {
    let window = json!({
        "selector": "region=r1",
        "rule": { "kind": "weekly", "timezone": "UTC", "start": "22:00", "minutes": 60 },
    });
    environment.admin.put_window("night", &serde_json::from_value(window)?).await?;
    let policy = json!({ "soak_seconds": 86400 });
    broker::policy_set(&environment.database.url(), &policy).await?;
    for number in 1..=args.view_stacks {
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: third\n  namespace: default\n";
        environment.submit(&format!("stack-{number}"), yaml.to_owned()).await?;
    }
    Ok(())
}

/// As many threads as there are cores, which compute until this is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn begin() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
