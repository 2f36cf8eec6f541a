//! Loads everything: at the start, and when the outbox does not continue from the cursor.

use std::sync::Arc;
use std::time::Instant;

use sqlx::{Connection as _, PgConnection};

use super::{Cursor, OutboxTail, finished, freshness, off_thread};
use crate::domain::facts::AgentFacts;
use crate::index::{Changes, Snapshot};
use crate::store::facts::{
    AllHolds, facts_of_all_agents_on_conn, facts_of_all_stacks_on_conn, holds_of_all_agents_on_conn,
};
use crate::store::grants::facts_of_rules_on_conn;
use crate::store::outbox::{
    READ_ONLY_SNAPSHOT, outbox_export_on_conn, outbox_highest_on_conn, outbox_import_on_conn,
    outbox_snapshot_on_conn,
};
use crate::store::{Doing as _, StoreError};

impl OutboxTail {
    /// Loads everything in one snapshot. The tail then continues from the horizon of this snapshot; changes
    /// above the horizon that are already loaded are simply applied again.
    pub async fn load(&self) -> Result<Cursor, StoreError> {
        let started = Instant::now();
        let mut conn = self.pool.acquire().await.doing("begin to load the index")?;
        let mut transaction = conn.begin_with(READ_ONLY_SNAPSHOT).await.doing("begin to load the index")?;
        let recent = self.history.recent();
        let (snapshot, _) = outbox_snapshot_on_conn(&mut transaction, &recent.marks).await?;
        self.check_history(&mut transaction, &recent, &snapshot).await?;
        let exported = outbox_export_on_conn(&mut transaction).await?;
        let mut second = self.pool.begin_with(READ_ONLY_SNAPSHOT).await.doing("begin to load the index")?;
        outbox_import_on_conn(&mut second, &exported).await?;
        let rest = tokio::spawn(async move {
            disable_statement_timeout(&mut second).await?;
            let holds = holds_of_all_agents_on_conn(&mut second).await?;
            let stacks = facts_of_all_stacks_on_conn(&mut second).await?;
            let rules = facts_of_rules_on_conn(&mut second).await?;
            second.commit().await.doing("end loading the index")?;
            Ok::<_, StoreError>((holds, stacks, rules))
        });
        disable_statement_timeout(&mut transaction).await?;
        let highest = outbox_highest_on_conn(&mut transaction, snapshot.horizon, None, true).await?;
        let agents = facts_of_all_agents_on_conn(&mut transaction).await?;
        transaction.commit().await.doing("end loading the index")?;
        let (holds, stacks, rules) = finished(rest.await)?;
        let mark = self.mark(&mut conn).await?;
        self.record_marks(&mut conn, recent, mark.as_slice()).await?;
        let (agent_count, stack_count) = (agents.len(), stacks.len());
        let index = Arc::clone(&self.index);
        let freshness = freshness(&snapshot, highest, mark.unwrap_or_default());
        let read = started.elapsed();
        off_thread(move || {
            let agents = with_holds(agents, holds);
            index.replace(
                Snapshot::new(Changes { agents, stacks, rules: Some(rules), ..Changes::default() }),
                freshness,
            );
        })
        .await;
        let (read, all) = (read.as_millis(), started.elapsed().as_millis());
        tracing::info!(
            agents = agent_count, stacks = stack_count, position = %freshness.position, read_millis = read, millis = all,
            "index loaded"
        );
        Ok(Cursor { snapshot, moved: snapshot.now, is_marked: mark.is_some() })
    }
}

/// Disables the statement timeout: with it, a long load would be interrupted and start over, forever.
async fn disable_statement_timeout(connection: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SET LOCAL statement_timeout = 0")
        .execute(connection)
        .await
        .map(|_| ())
        .doing("begin to load the index")
}

fn with_holds(mut agents: Vec<AgentFacts>, mut holds: AllHolds) -> Vec<AgentFacts> {
    for agent in &mut agents {
        if let Some((stacks, unconfirmed)) = holds.remove(&agent.id) {
            agent.hold(stacks, unconfirmed);
        }
    }
    agents
}
