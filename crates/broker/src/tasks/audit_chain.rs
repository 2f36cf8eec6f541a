//! Chains the audit log asynchronously, so that writers do not wait for each other.
//!
//! Waits for: a timer (1 s). One replica at a time does this, under a lease; each transaction checks the
//! lease's fencing token, so that a replica that was paused cannot fork the chain. Like the outbox, entries
//! are read only below the lowest open transaction, so that none is skipped. The heads are logged once a
//! minute: if someone rewrites the chain, a copy of the log elsewhere reveals it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use brokkr_api::audit::{AuditHead, AuditVerdict, BrokenLink};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::audit::{ROOT, floor_of, link};
use crate::store::audit::{
    ChainLink, audit_chain_on_conn, audit_heads, audit_stray, audit_unchained_on_conn, audit_walk,
};
use crate::store::audit_partitions::audit_floor_link;
use crate::store::leases::{Lease, lease_hold_on_conn, lease_release_on_conn, lease_take_on_conn};
use crate::store::{Doing as _, StoreError};

const LEASE: &str = "audit-chain";
const LEASE_SECONDS: f64 = 15.0;
const EVERY: Duration = Duration::from_secs(1);
const LOG_HEADS_EVERY: Duration = Duration::from_secs(60);
/// Entries of one transaction.
const BATCH: i64 = 1000;

pub async fn run(pool: PgPool, stop: CancellationToken) {
    let holder = Uuid::now_v7();
    let mut logged: (Instant, HashMap<String, i64>) = (Instant::now(), HashMap::new());
    let mut lease: Option<Lease> = None;
    loop {
        match round(&pool, holder).await {
            Ok(held) => lease = held,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "failed to extend the hash chain of the audit log; will retry");
            }
        }
        if lease.is_some() && logged.0.elapsed() >= LOG_HEADS_EVERY {
            logged.0 = Instant::now();
            log_heads(&pool, &mut logged.1).await;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
    if let Some(lease) = lease
        && let Ok(mut connection) = pool.acquire().await
    {
        // Without this, the next replica would have to wait until the lease expires.
        let _ = lease_release_on_conn(&mut connection, lease).await;
    }
}

/// Takes the lease if it is available, and chains all entries.
async fn round(pool: &PgPool, holder: Uuid) -> Result<Option<Lease>, StoreError> {
    let mut connection = pool.acquire().await.doing("chain the audit log")?;
    let Some(lease) = lease_take_on_conn(&mut connection, LEASE, holder, LEASE_SECONDS).await? else {
        return Ok(None);
    };
    drop(connection);
    while let Some(count) = chain(pool, lease).await? {
        if count < BATCH {
            return Ok(Some(lease));
        }
    }
    Ok(None)
}

/// Chains a batch and returns its size; none if another replica has the lease.
pub async fn chain(pool: &PgPool, lease: Lease) -> Result<Option<i64>, StoreError> {
    let mut transaction = pool.begin().await.doing("begin to chain the audit log")?;
    if !lease_hold_on_conn(&mut transaction, lease, LEASE_SECONDS).await? {
        return Ok(None);
    }
    let entries = audit_unchained_on_conn(&mut transaction, BATCH).await?;
    let Some(end) = entries.last().map(|(xid, entry)| (*xid, entry.id)) else { return Ok(Some(0)) };
    let projects: Vec<String> = entries.iter().map(|(_, entry)| entry.project.clone()).collect();
    let mut heads: HashMap<String, AuditHead> = audit_heads(&mut *transaction, Some(&projects))
        .await?
        .into_iter()
        .map(|head| (head.project.clone(), head))
        .collect();
    let links: Vec<ChainLink> = entries
        .iter()
        .map(|(_, entry)| {
            let before = heads.get(&entry.project).map_or((0, ROOT), |head| (head.number, head.hash));
            let (project, number, hash) = (entry.project.clone(), before.0 + 1, link(before.1, entry));
            let head = AuditHead { project, number, hash };
            heads.insert(entry.project.clone(), head.clone());
            ChainLink { head, audit_id: entry.id, audit_at: entry.at }
        })
        .collect();
    let heads: Vec<AuditHead> = heads.into_values().collect();
    audit_chain_on_conn(&mut transaction, &links, &heads, end).await?;
    transaction.commit().await.doing("chain the audit log")?;
    Ok(Some(i64::try_from(links.len()).unwrap_or(i64::MAX)))
}

/// Logs the heads that moved.
async fn log_heads(pool: &PgPool, logged: &mut HashMap<String, i64>) {
    let Ok(heads) = audit_heads(pool, None).await else { return };
    for head in heads {
        if logged.insert(head.project.clone(), head.number) != Some(head.number) {
            tracing::info!(project = head.project, number = head.number, hash = %head.hash, "new head of the audit chain");
        }
    }
}

/// Verifies the chain of a project from the link after `after` on, for at most `most` links.
pub async fn verify(pool: &PgPool, project: &str, after: i64, most: i64) -> Result<AuditVerdict, StoreError> {
    let floor = floor(pool, project).await?;
    let mut verdict = AuditVerdict {
        project: project.to_owned(),
        links: 0,
        floor: floor.clone(),
        last: None,
        broken: None,
        next: None,
    };
    // The hash of the link before the first one to verify; unknown if that link is gone.
    let mut previous = if after == 0 { Some(ROOT) } else { None };
    if after > 0 {
        previous = audit_walk(pool, project, after - 1, 1).await?.first().map(|link| link.hash);
    }
    let mut at = after;
    while verdict.links < most {
        let links = audit_walk(pool, project, at, BATCH.min(most - verdict.links)).await?;
        if links.is_empty() {
            verdict.broken = end(pool, project, at, previous).await?;
            return Ok(verdict);
        }
        for walked in links {
            let broken = |why: &str| {
                Some(BrokenLink {
                    number: walked.number,
                    audit_id: Some(walked.audit_id),
                    why: why.to_owned(),
                })
            };
            if walked.number != at + 1 {
                verdict.broken = broken("an earlier link is missing");
            } else if let Some(entry) = &walked.entry {
                if entry.project != project || previous.map(|hash| link(hash, entry)) != Some(walked.hash) {
                    verdict.broken = broken("the entry was changed after it was added to the chain");
                }
            } else if floor.as_ref().is_none_or(|floor| walked.number > floor.number) {
                // Retention drops only entries up to the floor.
                verdict.broken = broken("the entry is missing");
            }
            if floor.as_ref().is_some_and(|floor| walked.number == floor.number && walked.hash != floor.hash)
            {
                verdict.broken = broken("the link differs from the recorded floor");
            }
            if verdict.broken.is_some() {
                return Ok(verdict);
            }
            (at, previous) = (walked.number, Some(walked.hash));
            verdict.links += 1;
            verdict.last =
                Some(AuditHead { project: project.to_owned(), number: walked.number, hash: walked.hash });
        }
    }
    verdict.next = Some(at);
    Ok(verdict)
}

/// Returns the floor of a chain: the last link whose entry may be missing. It counts only if the entry that records it is
/// itself in the chain, unchanged.
pub async fn floor(pool: &PgPool, project: &str) -> Result<Option<AuditHead>, StoreError> {
    let Some(number) = audit_floor_link(pool, project).await? else { return Ok(None) };
    let mut previous = ROOT;
    for walked in audit_walk(pool, project, (number - 2).max(0), 2).await? {
        if walked.number == number {
            let entry = walked.entry.filter(|entry| link(previous, entry) == walked.hash);
            return Ok(entry.as_ref().and_then(floor_of));
        }
        previous = walked.hash;
    }
    Ok(None)
}

/// Checks the end of a chain: it has to reach its head, and every entry has to be in a link.
async fn end(
    pool: &PgPool,
    project: &str,
    at: i64,
    last: Option<brokkr_api::ids::Checksum>,
) -> Result<Option<BrokenLink>, StoreError> {
    let broken = |number, audit_id, why: &str| Some(BrokenLink { number, audit_id, why: why.to_owned() });
    let head = audit_heads(pool, Some(&[project.to_owned()])).await?.into_iter().next();
    if let Some(head) = head
        && (head.number > at || (head.number == at && Some(head.hash) != last))
    {
        return Ok(broken(at + 1, None, "the chain does not end with its stored head"));
    }
    let stray = audit_stray(pool, project).await?;
    Ok(stray.and_then(|id| broken(at + 1, Some(id), "an entry is not part of the chain")))
}
