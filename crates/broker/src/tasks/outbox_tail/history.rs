//! Marks the history before something new is shown, and notices that the database has lost a mark.

use brokkr_api::HistoryMark;
use brokkr_api::system::{HoldCause, Witness};
use jiff::SignedDuration;
use sqlx::PgConnection;

use super::{Cursor, OutboxTail};
use crate::state::history::{MOST, RecentMarks};
use crate::store::history_marks::{
    JUDGED_DAYS, history_mark_insert_on_conn, history_mark_latest_on_conn, history_marks_exist_on_conn,
};
use crate::store::installation::installation_hold_without_marks;
use crate::store::outbox::OutboxSnapshot;
use crate::store::{Doing as _, StoreError};

/// Marks are deleted after days. A replica that has shown nothing new for this long makes another one.
const OLDEST_MARK: SignedDuration = SignedDuration::from_hours(24);

impl OutboxTail {
    /// Returns whether the history has to be marked although nothing changed.
    pub(super) fn is_mark_due(&self, cursor: &Cursor, snapshot: &OutboxSnapshot) -> bool {
        let age = snapshot.now.duration_since(self.index.freshness().mark.time());
        !cursor.is_marked || age > OLDEST_MARK
    }

    /// Marks the history, on the connection on which the snapshot was taken. Returns none while the database accepts no
    /// writes: what was written before is shown nevertheless.
    pub(super) async fn mark(&self, conn: &mut PgConnection) -> Result<Option<HistoryMark>, StoreError> {
        match history_mark_insert_on_conn(conn).await {
            Err(error) if error.is_read_only() => Ok(None),
            marked => marked.map(Some),
        }
    }

    /// Compares the snapshot with the latest marks that were known before it was taken. Puts the installation on hold if the
    /// database has lost one of them, unless its epoch was raised since, which settled that. Then reads the marks that the
    /// database has.
    pub(super) async fn check_history(
        &self,
        conn: &mut PgConnection,
        recent: &RecentMarks,
        snapshot: &OutboxSnapshot,
    ) -> Result<(), StoreError> {
        // A replica that was away for days does not know whether its marks were lost or deleted.
        let judged = snapshot.now.as_second() - i64::from(JUDGED_DAYS) * 24 * 3600;
        let latest = recent.marks.first().filter(|latest| latest.time().as_second() > judged);
        if let Some(latest) = latest.filter(|_| recent.epoch == snapshot.epoch && !snapshot.has_marks) {
            let cause = HoldCause::HistoryLost { witness: Witness::Replica, at: latest.time() };
            let hold =
                installation_hold_without_marks(&self.pool, recent.epoch, &recent.marks, &cause).await?;
            // None if the statement was executed by another server, or if the epoch was raised meanwhile.
            let hold = hold.ok_or(sqlx::Error::RowNotFound).doing("put the installation on hold")?;
            // At once, so that no request is answered before the state is refreshed.
            self.restore.set_hold(hold);
            tracing::error!(
                because = %cause,
                "the database has lost transactions; on hold until the epoch is raised"
            );
        }
        if !snapshot.has_marks || recent.epoch != snapshot.epoch {
            self.history.restart(snapshot.epoch);
        }
        let recent = self.history.recent();
        let marks = history_mark_latest_on_conn(conn, MOST.try_into().unwrap_or(i64::MAX)).await?;
        self.history.record(&recent, &marks);
        Ok(())
    }

    /// Records marks that were found on this connection. If polls have recorded later marks meanwhile, these have to be in the
    /// same database. Returns false if they are not: then what was read must not be shown.
    pub(super) async fn record_marks(
        &self,
        conn: &mut PgConnection,
        mut recent: RecentMarks,
        marks: &[HistoryMark],
    ) -> Result<bool, StoreError> {
        while !self.history.record(&recent, marks) {
            recent = self.history.recent();
            if !history_marks_exist_on_conn(conn, &recent.marks).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
