//! Reports per second, beside bare batched inserts of the same rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use anyhow::Result;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Hops, Report, ReportBatch, Transition};
use brokkr_api::{AgentId, EventId, SequenceId, StackId};
use brokkr_swarm::{Endpoint, Identity, Transport, Write};
use http::StatusCode;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use sqlx::types::Json;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::args::BrokerArgs;
use super::closed_loop::{Done, closed_loop};
use super::environment::{Engine, Environment};
use super::figures::{Figures, median};

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    let mut stacks = Vec::new();
    for stack in environment.stacks(args.batch).await? {
        let yaml = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n", stack.name);
        stacks.push((stack.id, environment.submit(stack.name.as_str(), yaml).await?));
    }
    let agents = environment.enrol(args.connections * 2).await?;
    let (mine, theirs) = agents.split_at(args.connections);
    for (name, batch) in [("report", args.batch), ("report_single", 1)] {
        let maker = Arc::new(Maker { stacks: stacks[..batch].to_vec(), clock: AtomicI64::new(0) });
        let (mut rates, mut wals) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..args.rounds {
            for which in [0, 1] {
                let wal = engine.wal_bytes().await?;
                let done = match which {
                    0 => through_the_broker(args, &environment, mine, &maker).await?,
                    _ => bare(args, &environment, theirs, &maker).await?,
                };
                let reports = batch as f64;
                rates[which].push(done.rate() * reports);
                wals[which].push((engine.wal_bytes().await? - wal) / done.answers as f64 / reports);
            }
        }
        let [broker, bare] = rates.map(median);
        let [broker_wal, bare_wal] = wals.map(median);
        figures.add(&format!("{name}s_per_s"), broker).bare(bare);
        figures
            .add(&format!("{name}_wal_bytes"), broker_wal)
            .bare(bare_wal)
            .note("write-ahead log of one report");
        let row = figures.add(&format!("{name}_ratio"), broker / bare);
        row.at_least(0.5).note(format!("batches of {batch}, each from one agent and in one transaction"));
    }
    environment.linger(args).await
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
    closed_loop(&broker, &environment.authorities(), args.connections, args.turn, StatusCode::OK, next).await
}

async fn bare(
    args: &BrokerArgs,
    environment: &Environment<'_>,
    agents: &[Identity],
    maker: &Arc<Maker>,
) -> Result<Done> {
    let (begun, turn) = (Instant::now(), args.turn);
    let mut loops = JoinSet::new();
    for agent in agents.iter().take(args.database_connections as usize) {
        let (pool, maker, agent) = (environment.pool.clone(), Arc::clone(maker), agent.agent);
        loops.spawn(async move {
            let mut count = 0;
            while begun.elapsed() < turn {
                transaction(&pool, agent, &maker.batch(agent)).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut answers = 0;
    while let Some(count) = loops.join_next().await {
        answers += count??;
    }
    Ok(Done { answers, seconds: begun.elapsed().as_secs_f64() })
}

/// Writes the rows of a batch: its idempotency key with the result, the events, and the status of each stack.
async fn transaction(pool: &PgPool, agent: AgentId, reports: &[Report]) -> Result<()> {
    let ids: Vec<Uuid> = reports.iter().map(|report| report.id.0).collect();
    let stacks: Vec<Uuid> = reports.iter().map(|report| report.stack_id.0).collect();
    let sequences: Vec<i64> = reports.iter().map(|report| report.sequence_id.0).collect();
    let transitions: Vec<String> = reports.iter().map(|report| report.transition.to_string()).collect();
    let hops: Vec<_> = reports.iter().map(|report| Json(report.hops)).collect();
    let at = reports.first().map(|report| report.at.to_string()).unwrap_or_default();
    let mut transaction = pool.begin().await?;
    sqlx::query(
        "INSERT INTO events (project, id, at, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops)
         SELECT 'default', r.id, $1::text::timestamptz, r.stack_id, $2, r.sequence_id, r.transition, '', '', '[]', r.hops
         FROM unnest($3::uuid[], $4::uuid[], $5::bigint[], $6::text[], $7::jsonb[])
              AS r (id, stack_id, sequence_id, transition, hops)
         ON CONFLICT DO NOTHING",
    )
    .bind(&at)
    .bind(agent.0)
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
         SELECT 'default', r.stack_id, $2, r.sequence_id, r.transition, '', '', '[]', r.hops, 3, 3,
                $1::text::timestamptz
         FROM unnest($3::uuid[], $4::bigint[], $5::text[], $6::jsonb[])
              AS r (stack_id, sequence_id, transition, hops)
         ON CONFLICT (project, stack_id, agent_id) DO UPDATE SET
            sequence_id = excluded.sequence_id, transition = excluded.transition, hops = excluded.hops,
            at = excluded.at",
    )
    .bind(&at)
    .bind(agent.0)
    .bind(&stacks)
    .bind(&sequences)
    .bind(&transitions)
    .bind(&hops)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "INSERT INTO idempotency_keys (project, principal, key, request_digest, status, body)
         VALUES ('default', $1, $2, $2, 200, $3)",
    )
    .bind(agent.to_string())
    .bind(Sha256::digest(Uuid::new_v4()).to_vec())
    .bind(serde_json::to_vec(&ids)?)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}
