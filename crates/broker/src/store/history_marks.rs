//! History marks: a replica commits one after it has read what it is about to show. A database without the mark has lost
//! transactions that were shown.
//!
//! The commit of a mark comes after every commit that was visible before it, in the order of the write-ahead log. So a
//! standby or a backup that has the mark has all of them, and one that lost any of them does not have the mark. This needs
//! no privileges and no log positions. A log position would not do with synchronous replication: what is written but not yet
//! confirmed, and therefore not visible, may be lost without harm.

use brokkr_api::HistoryMark;
use sqlx::{PgConnection, PgPool};

use super::{Fetch as _, Result, Run as _};

/// How long marks are kept. An agent that was away for longer is compared by its position alone.
const KEPT_DAYS: i32 = 7;
/// Younger marks are certainly not deleted yet, whichever replica's clock says so.
pub const JUDGED_DAYS: i32 = 6;
/// Rows deleted at once.
const SLICE: u64 = 5000;

/// Inserts a mark. A reader commits it on the connection on which it took its snapshot: on another one, a failover might
/// have happened in between. A writer inserts it in the transaction of its write.
pub async fn history_mark_insert_on_conn(conn: &mut PgConnection) -> Result<HistoryMark> {
    sqlx::query_scalar("INSERT INTO history_marks DEFAULT VALUES RETURNING id")
        .one(conn, "mark the history")
        .await
        .map(|id: i64| HistoryMark(id.cast_unsigned()))
}

/// Returns the latest marks.
pub async fn history_mark_latest_on_conn(conn: &mut PgConnection, limit: i64) -> Result<Vec<HistoryMark>> {
    let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM history_marks ORDER BY id DESC LIMIT $1")
        .bind(limit)
        .all(conn, "read the latest history marks")
        .await?;
    Ok(ids.into_iter().map(|id| HistoryMark(id.cast_unsigned())).collect())
}

/// The result of looking up a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkLookup {
    /// The database has it, or may have deleted it because of its age.
    Known,
    Lost,
    /// The database does not even have the latest marks that the replica knows, so what it has proves nothing to the replica.
    OtherHistory,
}

/// Returns whether the database has all these marks.
pub async fn history_marks_exist_on_conn(conn: &mut PgConnection, marks: &[HistoryMark]) -> Result<bool> {
    sqlx::query_scalar(
        "SELECT NOT EXISTS (SELECT FROM unnest($1::bigint[]) AS known (id)
                            WHERE NOT EXISTS (SELECT FROM history_marks m WHERE m.id = known.id))",
    )
    .bind(marks.iter().map(|mark| mark.0.cast_signed()).collect::<Vec<_>>())
    .one(conn, "look up history marks")
    .await
}

/// Looks up a mark; `recent` are the latest ones that the replica knows.
pub async fn history_mark_look_up(
    pool: &PgPool,
    mark: HistoryMark,
    recent: &[HistoryMark],
) -> Result<MarkLookup> {
    let (known, same_history): (bool, bool) = sqlx::query_as(
        "SELECT EXISTS (SELECT FROM history_marks WHERE id = $1)
                OR $1 < history_mark_at(now() - make_interval(days => $3)),
                NOT EXISTS (SELECT FROM unnest($2::bigint[]) AS known (id)
                            WHERE NOT EXISTS (SELECT FROM history_marks m WHERE m.id = known.id))",
    )
    .bind(mark.0.cast_signed())
    .bind(recent.iter().map(|mark| mark.0.cast_signed()).collect::<Vec<_>>())
    .bind(JUDGED_DAYS)
    .one(pool, "look up a history mark")
    .await?;
    Ok(match (known, same_history) {
        (false, _) => MarkLookup::Lost,
        (true, true) => MarkLookup::Known,
        (true, false) => MarkLookup::OtherHistory,
    })
}

/// Deletes old marks.
pub async fn history_mark_delete_old(pool: &PgPool) -> Result<u64> {
    let mut deleted = 0;
    loop {
        let slice = sqlx::query(
            "DELETE FROM history_marks WHERE id = ANY(ARRAY(
                SELECT id FROM history_marks WHERE id < history_mark_at(now() - make_interval(days => $1))
                ORDER BY id LIMIT $2))",
        )
        .bind(KEPT_DAYS)
        .bind(SLICE.cast_signed())
        .affected(pool, "delete old history marks")
        .await?;
        deleted += slice;
        if slice < SLICE {
            return Ok(deleted);
        }
    }
}
