//! The design sizes in a real database. Ignored in ordinary runs, because filling the database takes minutes:
//! `cargo nextest run --workspace --test broker sizes --run-ignored only`. Only an optimised build gives
//! meaningful figures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::page::Sort;
use brokkr_api::{AgentId, InstallationId, Selector};
use brokkr_broker::index::{AgentCursor, Index};
use brokkr_broker::state::history::History;
use brokkr_broker::state::restore::RestoreState;
use brokkr_broker::state::tail_notifier::TailNotifier;
use brokkr_broker::store::schema::schema_migrate;
use brokkr_broker::tasks::outbox_tail::OutboxTail;
use brokkr_testkit::Postgres;
use brokkr_testkit::postgres::Durability;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const AGENTS: i32 = 1_000_000;
const STACKS: i32 = 10_000;
const HOLDS: i32 = 3;

const FILL: [&str; 7] = [
    // Disables foreign keys: checking each reference takes longer than everything else.
    "SET session_replication_role = replica",
    "INSERT INTO agents (id, name, status, labels, public_key)
     SELECT gen_random_uuid(), 'agent-' || lpad(n::text, 7, '0'), 'ACTIVE',
            jsonb_build_object('env', (ARRAY['prod', 'test', 'dev'])[1 + n % 3], 'region', 'r' || n % 50,
                               'site', 's' || n % 5000, 'tier', 't' || n % 7, 'cluster', 'c' || n),
            sha256(n::text::bytea)
     FROM generate_series(1, $1) n",
    "INSERT INTO stacks (project, id, name, newest_sequence_id)
     SELECT 'default', gen_random_uuid(), 'stack-' || lpad(n::text, 6, '0'), n FROM generate_series(1, $2) n",
    "INSERT INTO deployment_objects
         (project, stack_id, sequence_id, checksum, parsed_digest, resources, content, submitted_by)
     SELECT project, id, newest_sequence_id, sha256('x'), sha256('y'), 1, 'x', 'test' FROM stacks",
    "INSERT INTO stack_selectors (project, stack_id, selector)
     SELECT project, id, 'site=s' || newest_sequence_id % 5000 FROM stacks",
    "INSERT INTO agent_holds (agent_id, project, stack_id)
     SELECT a.id, 'default', s.id
     FROM (SELECT id, row_number() OVER () AS n FROM agents) a
     CROSS JOIN generate_series(1, $3) k
     JOIN stacks s ON s.newest_sequence_id = 1 + (a.n + k * 3000) % $2",
    // Names the tables: otherwise ANALYZE would include the catalogs that all databases share, and other
    // tests use them at the same time.
    "ANALYZE agents, stacks, stack_targets, stack_selectors, agent_holds, deployment_objects, stack_status",
];

async fn filled(url: &str) -> Result<()> {
    schema_migrate(url).await?;
    let pool = PgPoolOptions::new().max_connections(1).connect(url).await?;
    for statement in FILL {
        let statement = statement
            .replace("$1", &AGENTS.to_string())
            .replace("$2", &STACKS.to_string())
            .replace("$3", &HOLDS.to_string());
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await?;
    }
    Ok(())
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("it is there")?;
    Ok(line.split_whitespace().nth(1).context("a figure")?.parse::<u64>()? * 1024)
}

/// Returns the 99th percentile of `times`.
fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "fills a database for minutes"]
async fn sizes_a_replica_serves_a_million_agents_within_15_seconds_of_its_start() -> Result<()> {
    let postgres = Postgres::start_with(Durability::Full).await?;
    let database = postgres.database().await?;
    let started = Instant::now();
    filled(&database.url()).await?;
    println!("filled in {:?}", started.elapsed());
    let pool = PgPool::connect(&database.url()).await?;
    let index = Arc::new(Index::new(InstallationId::generate()));
    let tail = OutboxTail::new(
        pool,
        Arc::clone(&index),
        TailNotifier::default(),
        History::default(),
        RestoreState::default(),
    );

    let before = resident()?;
    let started = Instant::now();
    tail.load().await?;
    let took = started.elapsed();
    let bytes = resident()? - before;
    println!(
        "{AGENTS} agents with {HOLDS} held stacks each, {STACKS} stacks: loaded in {took:?}, {} MiB, {} bytes an agent",
        bytes >> 20,
        bytes / u64::try_from(AGENTS)?
    );
    preview(&index);
    waiters(&index)?;
    assert!(took < Duration::from_secs(15), "{took:?}");
    Ok(())
}

fn preview(index: &Index) {
    let after = AgentCursor::Name("agent-05".to_owned());
    for text in [
        "*",
        "env=prod",
        "env=prod,region in (r1,r2,r3),tier!=t3",
        "site=s17",
        "cluster=c77",
        "!none,env notin (dev)",
    ] {
        let selector: Selector = text.parse().expect("a selector");
        let times = (0..200).map(|_| {
            let started = Instant::now();
            let snapshot = index.snapshot();
            let found = snapshot.select(&selector) & snapshot.granted("default");
            let page = snapshot.page(&found, Sort::Name, Some(&after), 100);
            assert!(page.len() <= 101);
            started.elapsed()
        });
        let p99 = p99(times.collect());
        println!("preview of {text}: {} agents, p99 {p99:?}", index.snapshot().select(&selector).len());
    }
}

fn waiters(index: &Arc<Index>) -> Result<()> {
    const MANY: usize = 200_000;
    let agents: Vec<AgentId> = (0..MANY).map(|_| AgentId::generate()).collect();
    let mut waiting = Vec::with_capacity(MANY);
    let before = resident()?;
    waiting.extend(agents.iter().map(|agent| index.wait(*agent)));
    println!("{} bytes a waiter", (resident()? - before) / MANY as u64);
    Ok(())
}
