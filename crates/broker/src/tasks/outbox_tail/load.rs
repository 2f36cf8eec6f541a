//! Loads everything: at the start, and when the outbox does not continue from the cursor.

use std::sync::Arc;
use std::time::Instant;

use super::{Cursor, OutboxTail, finished, freshness, off_thread};
use crate::domain::facts::AgentFacts;
use crate::index::{Changes, Snapshot};
use crate::store::facts::{
    AllHolds, facts_of_all_agents_on_conn, facts_of_all_stacks_on_conn, holds_of_all_agents_on_conn,
};
use crate::store::grants::facts_of_rules_on_conn;
use crate::store::outbox::{
    outbox_export_on_conn, outbox_highest_on_conn, outbox_import_on_conn, outbox_snapshot_on_conn,
};
use crate::store::{CopyConnection, Doing as _, StoreError};

impl OutboxTail {
    /// Loads everything in one snapshot. The tail then continues from the horizon of this snapshot; changes
    /// above the horizon that are already loaded are simply applied again.
    pub async fn load(&self) -> Result<Cursor, StoreError> {
        let (started, doing) = (Instant::now(), "begin to load the index");
        let mut conn = CopyConnection::begin(&self.pool).await.doing(doing)?;
        let recent = self.history.recent();
        let (snapshot, _) = outbox_snapshot_on_conn(&mut conn, &recent.marks).await?;
        self.check_history(&mut conn, &recent, &snapshot).await?;
        let exported = outbox_export_on_conn(&mut conn).await?;
        let mut second = CopyConnection::begin(&self.pool).await.doing(doing)?;
        outbox_import_on_conn(&mut second, &exported).await?;
        let rest = tokio::spawn(async move {
            second.disable_timeout().await.doing(doing)?;
            let holds = holds_of_all_agents_on_conn(&mut second).await?;
            let stacks = facts_of_all_stacks_on_conn(&mut second).await?;
            let rules = facts_of_rules_on_conn(&mut second).await?;
            Ok::<_, StoreError>((holds, stacks, rules))
        });
        conn.disable_timeout().await.doing(doing)?;
        let highest = outbox_highest_on_conn(&mut conn, snapshot.horizon, None, true).await?;
        let agents = facts_of_all_agents_on_conn(&mut conn).await?;
        conn.commit().await.doing("end loading the index")?;
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

fn with_holds(mut agents: Vec<AgentFacts>, mut holds: AllHolds) -> Vec<AgentFacts> {
    for agent in &mut agents {
        if let Some((stacks, unconfirmed)) = holds.remove(&agent.id) {
            agent.hold(stacks, unconfirmed);
        }
    }
    agents
}
