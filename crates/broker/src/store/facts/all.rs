//! All facts, at the start of a replica: narrow columns, copied in binary format. Holds are read concurrently with the
//! agents, on another connection with the same snapshot.

use std::collections::HashMap;

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, InstanceId, StackId, UpgradeId};
use futures::TryStreamExt as _;
use sqlx::PgConnection;

use super::{read_stack, stacks_where};
use crate::domain::facts::{AgentFacts, AgentUpgradeFacts, SessionFacts, StackFacts};
use crate::domain::labels::Labeller;
use crate::store::copy::{CopyConnection, copy_rows};
use crate::store::{Doing as _, Result, known};

/// The same columns as for changed agents, without holds.
const AGENTS: &str = "COPY (
    SELECT id, name, status, labels, labels_changed_at, public_key,
           session_count, session_instance, session_duplicated, rotation_asked_at IS NOT NULL,
           upgradable_since, upgrade_id, upgrade_id IS NOT NULL AND upgrade_ended
    FROM agents) TO STDOUT (FORMAT binary)";

const HOLDS: &str = "COPY (
    SELECT agent_id, coalesce(string_agg(uuid_send(stack_id), ''::bytea) FILTER (WHERE confirmed), ''),
           coalesce(string_agg(uuid_send(stack_id), ''::bytea) FILTER (WHERE NOT confirmed), '')
    FROM agent_holds WHERE ended_at IS NULL GROUP BY agent_id
    ) TO STDOUT (FORMAT binary)";

/// Returns every agent, without holds: see [`holds_of_all_agents_on_conn`].
pub async fn facts_of_all_agents_on_conn(conn: &mut CopyConnection) -> Result<Vec<AgentFacts>> {
    let (mut agents, mut labeller) = (Vec::new(), Labeller::default());
    let none = brokkr_api::protocol::holds_digest([]);
    let read = copy_rows(conn, AGENTS, |row| {
        agents.push(AgentFacts {
            id: AgentId(row.uuid()?),
            name: row.text()?,
            status: known(&row.text()?)?,
            labels: labeller.read(&row.json()?).map_err(|error| sqlx::Error::Decode(error.into()))?,
            labels_changed_at: row.time()?,
            public_key: row.digest()?,
            session: SessionFacts {
                count: row.number()?,
                instance: row.optional_uuid()?.map(InstanceId),
                duplicated: row.truth()?,
            },
            new_key_wanted: row.truth()?,
            upgrade: AgentUpgradeFacts {
                allowed_since: row.optional_time()?,
                reported: row.optional_number()?.map(UpgradeId),
                has_ended: row.truth()?,
            }
            .boxed(),
            holds: Vec::new(),
            holds_digest: Checksum(none.0),
            unconfirmed: Box::default(),
        });
        Ok(())
    });
    read.await.doing("read all agents")?;
    Ok(agents)
}

/// What an agent holds, and its unconfirmed claims.
pub type AllHolds = HashMap<AgentId, (Vec<StackId>, Vec<StackId>)>;

/// Returns the holds of every agent.
pub async fn holds_of_all_agents_on_conn(conn: &mut CopyConnection) -> Result<AllHolds> {
    let mut holds = HashMap::new();
    let read = copy_rows(conn, HOLDS, |row| {
        let agent = AgentId(row.uuid()?);
        let stacks = |ids: Vec<_>| ids.into_iter().map(StackId).collect();
        holds.insert(agent, (stacks(row.uuids()?), stacks(row.uuids()?)));
        Ok(())
    });
    read.await.doing("read the holds of all agents")?;
    Ok(holds)
}

/// Returns every non-deleted stack, and the deleted ones that an agent still holds.
pub async fn facts_of_all_stacks_on_conn(conn: &mut PgConnection) -> Result<Vec<StackFacts>> {
    sqlx::query(stacks_where!(
        "s.deleted_at IS NULL OR EXISTS (SELECT FROM agent_holds h WHERE h.stack_id = s.id AND h.confirmed AND h.ended_at IS NULL)"
    ))
    .try_map(read_stack)
    .fetch(conn)
    .try_collect()
    .await
    .doing("read all stacks")
}
