//! Adds many agents directly to the database, because joining one by one would take hours.
//!
//! The broker learns of them from its outbox, as if they had joined, or when it starts.

use anyhow::{Context as _, Result};
use brokkr_api::Labels;
use brokkr_api::names::DEFAULT_PROJECT;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::identity::Identity;

const BATCH: usize = 2000;

/// Writes agents `0..count` of the seed, each with its first session open. Existing agents stay unchanged.
pub async fn enrol(
    pool: &PgPool,
    seed: u64,
    count: usize,
    labels: impl Fn(usize) -> Labels,
) -> Result<Vec<Identity>> {
    let agents: Vec<Identity> = (0..count).map(|number| Identity::derive(seed, number)).collect();
    for (batch, agents) in agents.chunks(BATCH).enumerate() {
        let numbers = batch * BATCH..;
        let mut transaction = pool.begin().await?;
        insert(&mut transaction, seed, numbers.zip(agents), &labels).await.context("cannot enrol agents")?;
        transaction.commit().await?;
    }
    Ok(agents)
}

async fn insert<'a>(
    connection: &mut PgConnection,
    seed: u64,
    agents: impl Iterator<Item = (usize, &'a Identity)>,
    labels: impl Fn(usize) -> Labels,
) -> Result<()> {
    let (mut ids, mut names, mut all_labels) = (Vec::new(), Vec::new(), Vec::new());
    let (mut keys, mut instances) = (Vec::new(), Vec::new());
    for (number, agent) in agents {
        ids.push(agent.agent.0);
        names.push(format!("swarm-{seed}-{number}"));
        all_labels.push(Json(labels(number)));
        keys.push(agent.public_key()?.to_vec());
        instances.push(agent.session.instance.0);
    }
    sqlx::query(
        "INSERT INTO agents (id, name, status, labels, public_key, session_count, session_instance)
         SELECT id, name, 'ACTIVE', labels, public_key, 1, instance
         FROM unnest($1::uuid[], $2::text[], $3::jsonb[], $4::bytea[], $5::uuid[])
              AS a (id, name, labels, public_key, instance)
         ON CONFLICT DO NOTHING",
    )
    .bind(&ids)
    .bind(&names)
    .bind(&all_labels)
    .bind(&keys)
    .bind(&instances)
    .execute(&mut *connection)
    .await?;
    notify(connection, &ids).await
}

async fn notify(connection: &mut PgConnection, agents: &[Uuid]) -> Result<()> {
    sqlx::query(
        "INSERT INTO outbox (project, kind, key) SELECT $1, 'agent', key FROM unnest($2::uuid[]) AS key",
    )
    .bind(DEFAULT_PROJECT)
    .bind(agents)
    .execute(connection)
    .await?;
    Ok(())
}
