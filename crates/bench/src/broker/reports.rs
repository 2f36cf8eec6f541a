//! Reports per second, in batches and one by one, beside bare inserts of the same rows in the same groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Hops, Report, ReportBatch, Transition};
use brokkr_api::{AgentId, EventId, SequenceId, StackId};
use brokkr_swarm::{Endpoint, Identity, Transport, Write};
use http::StatusCode;
use jiff::Timestamp;
use sqlx::PgPool;
use sqlx::types::Json;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::args::BrokerArgs;
use super::closed_loop::{Done, closed_loop};
use super::environment::{Engine, Environment};
use super::figures::{Figures, median};

/// The groups of the bare inserts, as in the broker: stored at the same time, and their largest size.
const WRITERS: usize = 2;
const MOST_BATCHES: usize = 256;
const MOST_REPORTS: usize = 1000;
/// The number of reports one by one that the broker should store per second.
const WANTED: f64 = 5_000.0;

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    let mut stacks = Vec::new();
    for stack in environment.stacks(args.batch).await? {
        let yaml = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n", stack.name);
        stacks.push((stack.id, environment.submit(stack.name.as_str(), yaml).await?));
    }
    let reporters = args.reporters.max(args.connections);
    let agents = environment.enrol(reporters * 2).await?;
    let (mine, theirs) = agents.split_at(reporters);
    for (name, batch, count) in
        [("report", args.batch, args.connections), ("report_single", 1, args.reporters)]
    {
        let (mine, theirs) = (&mine[..count], &theirs[..count]);
        let maker = Arc::new(Maker { stacks: stacks[..batch].to_vec(), clock: AtomicI64::new(0) });
        let (mut rates, mut wals) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let mut groups = [Vec::new(), Vec::new()];
        for _ in 0..args.rounds {
            for (which, agents) in [mine, theirs].into_iter().enumerate() {
                let (wal, begun) = (engine.wal_bytes().await?, Timestamp::now());
                let done = match which {
                    0 => through_the_broker(args, &environment, agents, &maker).await?,
                    _ => bare(args.turn, &environment.pool, agents, &maker).await?,
                };
                let reports = batch as f64;
                rates[which].push(done.rate() * reports);
                wals[which].push((engine.wal_bytes().await? - wal) / done.answers as f64 / reports);
                groups[which].push(reports_per_commit(&environment.pool, begun).await?);
            }
        }
        let [broker, bare] = rates;
        let [broker_wal, bare_wal] = wals.map(median);
        let [group, bare_group] = groups.map(median);
        let row = figures.add_rounds(&format!("{name}s_per_s"), &broker).bare(median(bare.clone()));
        let row = row.note(format!("batches of {batch} from {count} agents, each signed"));
        if batch == 1 {
            row.at_least(WANTED);
        }
        figures
            .add(&format!("{name}s_per_commit"), group)
            .bare(bare_group)
            .note("reports in one transaction");
        figures
            .add(&format!("{name}_wal_bytes"), broker_wal)
            .bare(bare_wal)
            .note("write-ahead log of one report");
        figures
            .add_ratios(&format!("{name}_ratio"), &broker, &bare)
            .at_least(0.5)
            .note("of bare inserts of the same rows, grouped in the same way");
    }
    environment.linger(args).await
}

async fn reports_per_commit(pool: &PgPool, since: Timestamp) -> Result<f64> {
    let mean: Option<f64> = sqlx::query_scalar(
        "SELECT count(*)::float8 / nullif(count(DISTINCT xid), 0) FROM events WHERE recorded_at >= $1::text::timestamptz",
    )
    .bind(since.to_string())
    .fetch_one(pool)
    .await?;
    mean.context("no report was stored")
}

/// Makes batches of reports; no two reports are the same.
struct Maker {
    stacks: Vec<(StackId, SequenceId)>,
    clock: AtomicI64,
}

impl Maker {
    fn batch(&self, agent: AgentId) -> Vec<Report> {
        let tick = self.clock.fetch_add(1, Ordering::Relaxed);
        let at = Timestamp::from_microsecond(Timestamp::now().as_microsecond() + tick).unwrap_or_default();
        let report = |&(stack_id, sequence_id): &(StackId, SequenceId)| {
            let mut report = Report {
                id: EventId(Uuid::nil()),
                stack_id,
                sequence_id,
                transition: if tick % 2 == 0 { Transition::Applied } else { Transition::Healthy },
                at,
                hops: Hops { fetched: Some(at), verified: Some(at), applied: Some(at), ..Hops::default() },
                reason: Reason::None,
                message: Message::default(),
                objects: Vec::new(),
                conditions: Vec::new(),
                dropped: 0,
                ready: 3,
                total: 3,
            };
            report.id = report.derived_id(agent);
            report
        };
        self.stacks.iter().map(report).collect()
    }
}

async fn through_the_broker(
    args: &BrokerArgs,
    environment: &Environment<'_>,
    agents: &[Identity],
    maker: &Arc<Maker>,
) -> Result<Done> {
    let broker = environment.address()?;
    let (maker, address, installation) = (Arc::clone(maker), broker.clone(), environment.installation);
    let identities = agents.to_vec();
    // Each write is signed, as by a real agent. This load is part of the measurement.
    let next = move |connection: usize, _| {
        let identity = &identities[connection];
        let agent = identity.agent;
        let write = Write::reports(&ReportBatch { reports: maker.batch(agent) });
        let now = Timestamp::now().as_second();
        let assertion = &identity.write_assertion(installation, now, write.bound(agent)).unwrap_or_default();
        let endpoint = Endpoint { broker: &address, transport: Transport::Own, agent, assertion };
        endpoint.write(&write).unwrap_or_default()
    };
    closed_loop(&broker, &environment.authorities(), agents.len(), args.turn, StatusCode::OK, next).await
}

struct Waiting {
    agent: AgentId,
    reports: Vec<Report>,
    stored: oneshot::Sender<()>,
}

/// Stores batches without a server between. As in the broker, the next group forms while one is stored.
async fn bare(turn: Duration, pool: &PgPool, agents: &[Identity], maker: &Arc<Maker>) -> Result<Done> {
    let begun = Instant::now();
    let (sender, receiver) = mpsc::channel(agents.len());
    let receiver = Arc::new(Mutex::new(receiver));
    let (mut writers, mut loops) = (JoinSet::new(), JoinSet::new());
    for _ in 0..WRITERS {
        let (pool, receiver) = (pool.clone(), Arc::clone(&receiver));
        writers.spawn(async move {
            while let Some(group) = next_group(&receiver).await {
                transaction(&pool, &group).await?;
                group.into_iter().for_each(|waiting| _ = waiting.stored.send(()));
            }
            anyhow::Ok(())
        });
    }
    for agent in agents {
        let (sender, maker, agent) = (sender.clone(), Arc::clone(maker), agent.agent);
        loops.spawn(async move {
            let mut count = 0;
            while begun.elapsed() < turn {
                let (stored, is_stored) = oneshot::channel();
                let waiting = Waiting { agent, reports: maker.batch(agent), stored };
                sender.send(waiting).await.ok().context("the writers have ended")?;
                is_stored.await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    drop(sender);
    let mut answers = 0;
    while let Some(count) = loops.join_next().await {
        answers += count??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    Ok(Done { answers, seconds })
}

/// Returns the next batches to store together; none when no more will come.
async fn next_group(receiver: &Mutex<mpsc::Receiver<Waiting>>) -> Option<Vec<Waiting>> {
    let mut receiver = receiver.lock().await;
    let mut group = vec![receiver.recv().await?];
    let mut reports = group[0].reports.len();
    while group.len() < MOST_BATCHES && reports < MOST_REPORTS {
        let Ok(next) = receiver.try_recv() else { break };
        reports += next.reports.len();
        group.push(next);
    }
    Some(group)
}

/// Writes the rows of a group: the events, and the status of each stack on each agent.
async fn transaction(pool: &PgPool, group: &[Waiting]) -> Result<()> {
    let rows =
        || group.iter().flat_map(|waiting| waiting.reports.iter().map(|report| (waiting.agent, report)));
    let agents: Vec<Uuid> = rows().map(|(agent, _)| agent.0).collect();
    let ids: Vec<Uuid> = rows().map(|(_, report)| report.id.0).collect();
    let times: Vec<String> = rows().map(|(_, report)| report.at.to_string()).collect();
    let stacks: Vec<Uuid> = rows().map(|(_, report)| report.stack_id.0).collect();
    let sequences: Vec<i64> = rows().map(|(_, report)| report.sequence_id.0).collect();
    let transitions: Vec<String> = rows().map(|(_, report)| report.transition.to_string()).collect();
    let hops: Vec<_> = rows().map(|(_, report)| Json(report.hops)).collect();
    let mut transaction = pool.begin().await?;
    sqlx::query(
        "INSERT INTO events (project, id, at, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops)
         SELECT 'default', r.id, r.at::timestamptz, r.stack_id, r.agent_id, r.sequence_id, r.transition, '', '', '[]', r.hops
         FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::text[], $7::jsonb[])
              AS r (at, agent_id, id, stack_id, sequence_id, transition, hops)
         ON CONFLICT DO NOTHING",
    )
    .bind(&times)
    .bind(&agents)
    .bind(&ids)
    .bind(&stacks)
    .bind(&sequences)
    .bind(&transitions)
    .bind(&hops)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops,
                                   ready, total, at)
         SELECT 'default', r.stack_id, r.agent_id, r.sequence_id, r.transition, '', '', '[]', r.hops, 3, 3,
                r.at::timestamptz
         FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::jsonb[])
              AS r (at, agent_id, stack_id, sequence_id, transition, hops)
         ON CONFLICT (project, stack_id, agent_id) DO UPDATE SET
            sequence_id = excluded.sequence_id, transition = excluded.transition, hops = excluded.hops,
            at = excluded.at",
    )
    .bind(&times)
    .bind(&agents)
    .bind(&stacks)
    .bind(&sequences)
    .bind(&transitions)
    .bind(&hops)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}
