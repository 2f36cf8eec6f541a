//! Submissions per second, for one stack and for 200, beside bare transactions with the same rows and the same row lock.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::args::BrokerArgs;
use super::closed_loop::{Done, closed_loop};
use super::environment::{Engine, Environment};
use super::figures::{Figures, median};
use crate::workload::Workload;

const MANY: usize = 200;

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    let stacks = environment.stacks(MANY).await?;
    let stacks: Vec<Uuid> = stacks.into_iter().map(|stack| stack.id.0).collect();
    let yaml = Bytes::from(Workload::application("shop", "web").yaml());
    for (name, count) in [("submit_1", 1), ("submit_200", MANY)] {
        let stacks: Arc<[Uuid]> = stacks[..count].into();
        let (mut rates, mut wals) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..args.rounds {
            for which in [0, 1] {
                let wal = engine.wal_bytes().await?;
                let done = match which {
                    0 => through_the_broker(args, &environment, &stacks, &yaml).await?,
                    _ => bare(args, &environment, &stacks, &yaml).await?,
                };
                rates[which].push(done.rate());
                wals[which].push((engine.wal_bytes().await? - wal) / done.answers as f64);
            }
        }
        let [broker, bare] = rates;
        let [broker_wal, bare_wal] = wals.map(median);
        figures.add_rounds(&format!("{name}_per_s"), &broker).bare(median(bare.clone()));
        figures
            .add(&format!("{name}_wal_bytes"), broker_wal)
            .bare(bare_wal)
            .note("write-ahead log of one submission");
        let key = if count == 1 { "submit_ratio_1" } else { "submit_ratio" };
        figures.add_ratios(key, &broker, &bare).at_least(0.5).note(format!(
            "{count} stacks, {} bytes, {} connections to the database",
            yaml.len(),
            args.database_connections
        ));
    }
    environment.linger(args).await
}

async fn through_the_broker(
    args: &BrokerArgs,
    environment: &Environment<'_>,
    stacks: &Arc<[Uuid]>,
    yaml: &Bytes,
) -> Result<Done> {
    let broker = environment.address()?;
    let (host, bearer) = (broker.address.to_string(), format!("Bearer {}", environment.token));
    let (stacks, yaml, connections) = (Arc::clone(stacks), yaml.clone(), args.connections);
    let next = move |connection: usize, count: u64| {
        let stack = stacks[(connection + count as usize * connections) % stacks.len()];
        let request = Request::builder()
            .method("POST")
            .uri(format!("/api/v1/stacks/{stack}/deployment-objects"))
            .header(HOST, &host)
            .header(AUTHORIZATION, &bearer)
            .header(CONTENT_TYPE, "application/yaml")
            .header("idempotency-key", Uuid::new_v4().to_string());
        request.body(Full::new(yaml.clone())).unwrap_or_default()
    };
    closed_loop(&broker, &environment.authorities(), connections, args.turn, StatusCode::CREATED, next).await
}

/// Runs one transaction after the other on each of as many database connections as the broker has.
async fn bare(
    args: &BrokerArgs,
    environment: &Environment<'_>,
    stacks: &Arc<[Uuid]>,
    yaml: &Bytes,
) -> Result<Done> {
    let (begun, turn) = (Instant::now(), args.turn);
    let mut loops = JoinSet::new();
    for number in 0..args.database_connections as usize {
        let (pool, stacks, yaml) = (environment.pool.clone(), Arc::clone(stacks), yaml.clone());
        let connections = args.database_connections as usize;
        loops.spawn(async move {
            let mut count = 0;
            while begun.elapsed() < turn {
                let stack = stacks[(number + count * connections) % stacks.len()];
                transaction(&pool, stack, &yaml).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut answers = 0;
    while let Some(count) = loops.join_next().await {
        answers += count?? as u64;
    }
    Ok(Done { answers, seconds: begun.elapsed().as_secs_f64() })
}

/// Writes the rows of a submission: its idempotency key with the result, the object, the stack's newest
/// version, and the entries of the outbox and the audit log.
async fn transaction(pool: &PgPool, stack: Uuid, yaml: &[u8]) -> Result<()> {
    let digest = Sha256::digest(yaml).to_vec();
    let key = Sha256::digest(Uuid::new_v4()).to_vec();
    let mut transaction = pool.begin().await?;
    sqlx::query("SELECT name FROM stacks WHERE project = 'default' AND id = $1 FOR NO KEY UPDATE")
        .bind(stack)
        .fetch_one(&mut *transaction)
        .await?;
    let sequence: i64 = sqlx::query_scalar(
        "INSERT INTO deployment_objects (project, stack_id, sequence_id, checksum, parsed_digest, resources, content,
                                         submitted_by)
         VALUES ('default', $1, nextval('deployment_object_sequence'), $2, $2, 4, $3, 'bare') RETURNING sequence_id",
    )
    .bind(stack)
    .bind(&digest)
    .bind(yaml)
    .fetch_one(&mut *transaction)
    .await?;
    sqlx::query("UPDATE stacks SET newest_sequence_id = $2 WHERE project = 'default' AND id = $1")
        .bind(stack)
        .bind(sequence)
        .execute(&mut *transaction)
        .await?;
    sqlx::query("INSERT INTO outbox (project, kind, key) VALUES ('default', 'stack', $1)")
        .bind(stack)
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "INSERT INTO audit (project, kind, principal, name, method, route, path, address, status, request_id, after)
         VALUES ('default', 'change', 'bare', 'bare', 'POST', '/api/v1/stacks/{stack}/deployment-objects', $1,
                 '127.0.0.1', 201, $1, $2)",
    )
    .bind(stack.to_string())
    .bind(&digest)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "INSERT INTO idempotency_keys (project, principal, key, request_digest, status, body)
         VALUES ('default', 'bare', $1, $2, 201, $3)",
    )
    .bind(key)
    .bind(&digest)
    .bind(vec![b'x'; 400])
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}
