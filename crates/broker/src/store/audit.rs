//! The append-only audit log and the hash chain over it.

use brokkr_api::HistoryMark;
use brokkr_api::audit::{AuditEntry, AuditHead, AuditKind};
use brokkr_api::ids::Checksum;
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::idempotency_keys::KeyOwner;
use super::{Columns as _, Fetch as _, Result, Run as _, checksum};
use crate::domain::audit::AuditRecord;

/// Inserts entries and returns the id of their transaction.
pub async fn audit_insert(executor: impl PgExecutor<'_>, records: &[AuditRecord]) -> Result<u64> {
    let column = |read: fn(&AuditRecord) -> &str| {
        records.iter().map(|record| read(record).to_owned()).collect::<Vec<_>>()
    };
    let digests = |read: fn(&AuditRecord) -> Option<Checksum>| {
        records.iter().map(|record| read(record).map(|digest| digest.0.to_vec())).collect::<Vec<_>>()
    };
    let xid: Option<i64> = sqlx::query_scalar(
        "WITH written AS (
            INSERT INTO audit (project, kind, principal, name, method, route, path, address, status, request_id,
                               before, after, refusal, count, reason)
            SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                                 $7::text[], $8::text[], $9::int[], $10::text[], $11::bytea[], $12::bytea[],
                                 $13::text[], $14::bigint[], $15::text[])
            RETURNING xid)
         SELECT xid::text::bigint FROM written LIMIT 1",
    )
    .bind(column(|record| &record.project))
    .bind(records.iter().map(|record| record.kind.to_string()).collect::<Vec<_>>())
    .bind(column(|record| &record.principal))
    .bind(column(|record| &record.name))
    .bind(column(|record| &record.method))
    .bind(column(|record| &record.route))
    .bind(column(|record| &record.path))
    .bind(column(|record| &record.address))
    .bind(records.iter().map(|record| i32::from(record.status)).collect::<Vec<_>>())
    .bind(column(|record| &record.request_id))
    .bind(digests(|record| record.before))
    .bind(digests(|record| record.after))
    .bind(
        records
            .iter()
            .map(|record| record.refusal.map(|refusal| refusal.to_string()).unwrap_or_default())
            .collect::<Vec<_>>(),
    )
    .bind(records.iter().map(|record| record.count.cast_signed()).collect::<Vec<_>>())
    .bind(column(|record| &record.reason))
    .optional(executor, "write to the audit log")
    .await?;
    Ok(xid.unwrap_or_default().cast_unsigned())
}

/// A transaction that is about to be committed.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub xid: u64,
    pub mark: HistoryMark,
}

/// Stores the result of a request under its idempotency key, inserts its entry and marks the history, in one statement.
pub async fn audit_insert_with_result_on_conn(
    conn: &mut PgConnection,
    record: &AuditRecord,
    owner: &KeyOwner<'_>,
    body: &[u8],
) -> Result<Written> {
    let (xid, mark): (i64, i64) = sqlx::query_as(
        "WITH stored AS (
            UPDATE idempotency_keys SET status = $4, body = $5 WHERE project = $1 AND principal = $2 AND key = $3),
         written AS (
            INSERT INTO audit (project, kind, principal, name, method, route, path, address, status, request_id,
                               before, after, refusal, count, reason)
            VALUES ($6, $7, $8, $9, $10, $11, $12, $13, $4, $14, $15, $16, $17, $18, $19) RETURNING xid),
         marked AS (INSERT INTO history_marks DEFAULT VALUES RETURNING id)
         SELECT xid::text::bigint, marked.id FROM written, marked",
    )
    .bind(owner.project)
    .bind(owner.principal)
    .bind(owner.key)
    .bind(record.status.cast_signed())
    .bind(body)
    .bind(&record.project)
    .bind(record.kind.to_string())
    .bind(&record.principal)
    .bind(&record.name)
    .bind(&record.method)
    .bind(&record.route)
    .bind(&record.path)
    .bind(&record.address)
    .bind(&record.request_id)
    .bind(record.before.map(|digest| digest.0.to_vec()))
    .bind(record.after.map(|digest| digest.0.to_vec()))
    .bind(record.refusal.map(|refusal| refusal.to_string()).unwrap_or_default())
    .bind(record.count.cast_signed())
    .bind(&record.reason)
    .one(conn, "store the result and write to the audit log")
    .await?;
    Ok(Written { xid: xid.cast_unsigned(), mark: HistoryMark(mark.cast_unsigned()) })
}

fn read_entry(row: PgRow) -> Result<AuditEntry, sqlx::Error> {
    Ok(AuditEntry {
        id: row.field("id")?,
        at: row.time("at")?,
        project: row.field("project")?,
        kind: row.known("kind")?,
        principal: row.field("principal")?,
        name: row.field("name")?,
        method: row.field("method")?,
        route: row.field("route")?,
        path: row.field("path")?,
        address: row.field("address")?,
        status: u16::try_from(row.field::<i32>("status")?).unwrap_or_default(),
        request_id: row.field("request_id")?,
        refusal: row.field::<String>("refusal")?.parse().ok(),
        count: row.field::<i64>("count")?.cast_unsigned(),
        reason: row.field("reason")?,
        before: row.field::<Option<Vec<u8>>>("before")?.as_deref().and_then(digest),
        after: row.field::<Option<Vec<u8>>>("after")?.as_deref().and_then(digest),
    })
}

/// Reads a digest; none if its length is wrong, because someone tampered with it.
fn digest(bytes: &[u8]) -> Option<Checksum> {
    bytes.try_into().ok().map(Checksum)
}

/// Selects entries.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// A principal, or the name of a token.
    pub who: Option<String>,
    /// A route, or a method and a route.
    pub what: Option<String>,
    pub kind: Option<AuditKind>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only entries with a lower id.
    pub below: Option<i64>,
}

/// Returns up to `limit` entries, newest first, plus one if there are more.
pub async fn audit_list(
    pool: &PgPool,
    project: &str,
    filter: &AuditFilter,
    limit: usize,
) -> Result<Vec<AuditEntry>> {
    sqlx::query(
        "SELECT id, at, project, kind, principal, name, method, route, path, address, status, request_id,
                refusal, count, reason, before, after
         FROM audit
         WHERE project = $1 AND ($2::bigint IS NULL OR id < $2)
           AND ($3::text IS NULL OR principal = $3 OR name = $3)
           AND ($4::text IS NULL OR route = $4 OR method || ' ' || route = $4)
           AND ($5::text IS NULL OR kind = $5)
           AND ($6::timestamptz IS NULL OR at >= $6) AND ($7::timestamptz IS NULL OR at < $7)
         ORDER BY id DESC LIMIT $8",
    )
    .bind(project)
    .bind(filter.below)
    .bind(&filter.who)
    .bind(&filter.what)
    .bind(filter.kind.map(|kind| kind.to_string()))
    .bind(filter.since.map(|at| at.to_sqlx()))
    .bind(filter.until.map(|at| at.to_sqlx()))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_entry)
    .all(pool, "list the audit log")
    .await
}

/// Returns the next entries that are not chained yet, in the order of their transactions. Reads only below
/// the horizon, the lowest transaction that is still open: so no entry can commit later that belongs before
/// them.
pub async fn audit_unchained_on_conn(conn: &mut PgConnection, limit: i64) -> Result<Vec<(u64, AuditEntry)>> {
    sqlx::query(
        "SELECT a.xid::text::bigint AS transaction, a.id, a.at, a.project, a.kind, a.principal, a.name, a.method,
                a.route, a.path, a.address, a.status, a.request_id, a.refusal, a.count, a.reason, a.before, a.after
         FROM audit a
         WHERE (a.xid, a.id) > (SELECT c.xid, c.id FROM audit_cursor c)
           AND a.xid < pg_snapshot_xmin(pg_current_snapshot())
           AND NOT EXISTS (SELECT FROM audit_chain l WHERE l.audit_id = a.id)
         ORDER BY a.xid, a.id LIMIT $1",
    )
    .bind(limit)
    .try_map(|row| Ok((row.field::<i64>("transaction")?.cast_unsigned(), read_entry(row)?)))
    .all(conn, "read unchained audit entries")
    .await
}

/// Lets the chain continue after a dump and restore: transaction ids begin again, below the last chained one.
pub async fn audit_cursor_restart_on_conn(conn: &mut PgConnection) -> Result<()> {
    sqlx::query("UPDATE audit_cursor SET xid = '0', id = 0 WHERE xid >= pg_current_xact_id()")
        .run(conn, "restart the cursor of the audit chain")
        .await
}

/// One link of the chain.
#[derive(Clone, Debug)]
pub struct ChainLink {
    pub head: AuditHead,
    pub audit_id: i64,
    pub audit_at: Timestamp,
}

/// Inserts links and moves the cursor past the last chained entry. `heads` has the last link of each project.
pub async fn audit_chain_on_conn(
    conn: &mut PgConnection,
    links: &[ChainLink],
    heads: &[AuditHead],
    (xid, id): (u64, i64),
) -> Result<()> {
    let doing = "add to the audit chain";
    sqlx::query(
        "INSERT INTO audit_chain (project, number, audit_id, audit_at, hash)
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::bytea[])",
    )
    .bind(links.iter().map(|link| link.head.project.clone()).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.head.number).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.audit_id).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.audit_at.to_sqlx()).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.head.hash.0.to_vec()).collect::<Vec<_>>())
    .run(&mut *conn, doing)
    .await?;
    sqlx::query(
        "INSERT INTO audit_heads AS h (project, number, hash)
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[])
         ON CONFLICT (project) DO UPDATE SET number = excluded.number, hash = excluded.hash",
    )
    .bind(heads.iter().map(|head| head.project.clone()).collect::<Vec<_>>())
    .bind(heads.iter().map(|head| head.number).collect::<Vec<_>>())
    .bind(heads.iter().map(|head| head.hash.0.to_vec()).collect::<Vec<_>>())
    .run(&mut *conn, doing)
    .await?;
    sqlx::query("UPDATE audit_cursor SET xid = $1::bigint::text::xid8, id = $2")
        .bind(xid.cast_signed())
        .bind(id)
        .run(conn, doing)
        .await
}

/// Returns the heads of these projects, or of all.
pub async fn audit_heads(
    executor: impl PgExecutor<'_>,
    projects: Option<&[String]>,
) -> Result<Vec<AuditHead>> {
    let rows: Vec<(String, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT project, number, hash FROM audit_heads WHERE $1::text[] IS NULL OR project = ANY($1)
         ORDER BY project",
    )
    .bind(projects)
    .all(executor, "read the heads of the audit chains")
    .await?;
    let head = |(project, number, hash): (String, i64, Vec<u8>)| AuditHead {
        project,
        number,
        hash: checksum(&hash),
    };
    Ok(rows.into_iter().map(head).collect())
}

/// A link and its entry, if it exists.
#[derive(Clone, Debug)]
pub struct WalkedLink {
    pub number: i64,
    pub audit_id: i64,
    pub hash: Checksum,
    pub entry: Option<AuditEntry>,
}

/// Returns up to `limit` links of a project after `after`.
pub async fn audit_walk(pool: &PgPool, project: &str, after: i64, limit: i64) -> Result<Vec<WalkedLink>> {
    #[derive(sqlx::FromRow)]
    struct Link {
        number: i64,
        audit_id: i64,
        audit_at: jiff_sqlx::Timestamp,
        hash: Vec<u8>,
    }
    let doing = "walk the audit chain";
    let links: Vec<Link> = sqlx::query_as(
        "SELECT number, audit_id, audit_at, hash FROM audit_chain
         WHERE project = $1 AND number > $2 ORDER BY number LIMIT $3",
    )
    .bind(project)
    .bind(after)
    .bind(limit)
    .all(pool, doing)
    .await?;
    let entries = sqlx::query(
        "SELECT a.id, a.at, a.project, a.kind, a.principal, a.name, a.method, a.route, a.path, a.address, a.status,
                a.request_id, a.refusal, a.count, a.reason, a.before, a.after
         FROM audit a JOIN unnest($1::bigint[], $2::timestamptz[]) AS l (id, at) ON a.id = l.id AND a.at = l.at",
    )
    .bind(links.iter().map(|link| link.audit_id).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.audit_at).collect::<Vec<_>>())
    .try_map(read_entry)
    .all(pool, doing)
    .await?;
    let mut entries: std::collections::HashMap<i64, AuditEntry> =
        entries.into_iter().map(|entry| (entry.id, entry)).collect();
    Ok(links
        .into_iter()
        .map(|link| WalkedLink {
            number: link.number,
            audit_id: link.audit_id,
            hash: checksum(&link.hash),
            entry: entries.remove(&link.audit_id),
        })
        .collect())
}

/// Returns an entry that has no link although the cursor is past it: it was inserted later, or its link was
/// deleted.
pub async fn audit_stray(pool: &PgPool, project: &str) -> Result<Option<i64>> {
    sqlx::query_scalar(
        "SELECT a.id FROM audit a
         WHERE a.project = $1 AND (a.xid, a.id) <= (SELECT c.xid, c.id FROM audit_cursor c)
           AND NOT EXISTS (SELECT FROM audit_chain l WHERE l.audit_id = a.id) ORDER BY a.id LIMIT 1",
    )
    .bind(project)
    .optional(pool, "find entries outside the audit chain")
    .await
}
