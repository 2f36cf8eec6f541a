//! The facts of agents and stacks that the index needs, read as sets: the changed ones after a notification, and all of
//! them at the start (`all`).

mod all;

use brokkr_api::envelope::Approval;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, InstanceId, Labels, SequenceId, StackId};
use futures::TryStreamExt as _;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Doing as _, Result, checksum, known};
use crate::domain::facts::{
    AgentFacts, ApprovalFacts, ExplicitTarget, ObjectFacts, SelectorTarget, SessionFacts, StackFacts,
};
use crate::domain::labels::LabelSet;

pub use all::{facts_of_all_agents_on_conn, facts_of_all_stacks_on_conn, holds_of_all_agents_on_conn};

const NAMED_AGENTS: &str = "
    SELECT a.id, a.name, a.status, a.labels, a.labels_changed_at, a.public_key,
           a.session_count, a.session_instance, a.session_tied, a.rotation_asked_at IS NOT NULL AS new_key_wanted,
           ARRAY(SELECT h.stack_id FROM agent_holds h WHERE h.agent_id = a.id) AS holds
    FROM agents a WHERE a.id = ANY($1)";

macro_rules! stacks_where {
    ($condition:literal) => {
        concat!(
            "SELECT s.project, s.id, s.name, s.deleted_at IS NOT NULL AS deleted,
                    ARRAY(SELECT t.agent_id FROM stack_targets t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.agent_id) AS target_agents,
                    ARRAY(SELECT t.created_at FROM stack_targets t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.agent_id) AS target_times,
                    ARRAY(SELECT t.selector FROM stack_selectors t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.selector) AS selectors,
                    ARRAY(SELECT t.created_at FROM stack_selectors t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.selector) AS selector_times,
                    coalesce((SELECT jsonb_agg(jsonb_build_object('agent', p.agent_id, 'objects', p.objects,
                                                                  'by', p.approved_by, 'at', p.created_at)
                                               ORDER BY p.agent_id)
                              FROM prune_approvals p WHERE p.project = s.project AND p.stack_id = s.id
                                AND p.sequence_id = s.newest_sequence_id), '[]') AS approvals,
                    o.sequence_id, o.checksum, o.parsed_digest, o.is_deletion_marker, o.keeps_resources, o.resources,
                    o.created_at AS published_at
             FROM stacks s
             LEFT JOIN deployment_objects o
               ON o.project = s.project AND o.stack_id = s.id AND o.sequence_id = s.newest_sequence_id
             WHERE ",
            $condition
        )
    };
}

use stacks_where;

pub async fn facts_of_agents_on_conn(conn: &mut PgConnection, agents: &[AgentId]) -> Result<Vec<AgentFacts>> {
    let ids: Vec<Uuid> = agents.iter().map(|agent| agent.0).collect();
    sqlx::query_as::<_, AgentRow>(NAMED_AGENTS)
        .bind(ids)
        .fetch(conn)
        .and_then(async |row| row.facts())
        .try_collect()
        .await
        .doing("read changed agents")
}

pub async fn facts_of_stacks_on_conn(conn: &mut PgConnection, stacks: &[StackId]) -> Result<Vec<StackFacts>> {
    let ids: Vec<Uuid> = stacks.iter().map(|stack| stack.0).collect();
    sqlx::query_as::<_, StackRow>(stacks_where!("s.id = ANY($1)"))
        .bind(ids)
        .fetch(conn)
        .and_then(async |row| row.facts())
        .try_collect()
        .await
        .doing("read changed stacks")
}

#[derive(sqlx::FromRow)]
struct AgentRow {
    id: Uuid,
    name: String,
    status: String,
    labels: Json<Labels>,
    labels_changed_at: jiff_sqlx::Timestamp,
    public_key: Vec<u8>,
    session_count: i64,
    session_instance: Option<Uuid>,
    session_tied: bool,
    new_key_wanted: bool,
    holds: Vec<Uuid>,
}

impl AgentRow {
    fn facts(self) -> Result<AgentFacts, sqlx::Error> {
        let facts = AgentFacts {
            id: AgentId(self.id),
            name: self.name,
            status: known(&self.status)?,
            labels: LabelSet::from(&self.labels.0),
            labels_changed_at: self.labels_changed_at.to_jiff(),
            public_key: checksum(&self.public_key).0,
            session: SessionFacts {
                count: self.session_count,
                instance: self.session_instance.map(InstanceId),
                tied: self.session_tied,
            },
            new_key_wanted: self.new_key_wanted,
            holds: Vec::new(),
            holds_digest: Checksum([0; 32]),
        };
        Ok(facts.holding(self.holds.into_iter().map(StackId).collect()))
    }
}

#[derive(serde::Deserialize)]
struct ApprovalRow {
    agent: Option<AgentId>,
    objects: u32,
    by: String,
    at: jiff::Timestamp,
}

impl ApprovalRow {
    fn facts(self, sequence_id: SequenceId) -> ApprovalFacts {
        let (objects, approved_by, approved_at) = (self.objects, self.by, self.at);
        let approval = Approval { sequence_id, objects, approved_by, approved_at };
        ApprovalFacts { agent: self.agent, approval }
    }
}

#[derive(sqlx::FromRow)]
struct StackRow {
    project: String,
    id: Uuid,
    name: String,
    deleted: bool,
    target_agents: Vec<Uuid>,
    target_times: Vec<jiff_sqlx::Timestamp>,
    selectors: Vec<String>,
    selector_times: Vec<jiff_sqlx::Timestamp>,
    approvals: Json<Vec<ApprovalRow>>,
    sequence_id: Option<i64>,
    checksum: Option<Vec<u8>>,
    parsed_digest: Option<Vec<u8>>,
    is_deletion_marker: Option<bool>,
    keeps_resources: Option<bool>,
    resources: Option<i32>,
    published_at: Option<jiff_sqlx::Timestamp>,
}

impl StackRow {
    fn facts(self) -> Result<StackFacts, sqlx::Error> {
        let newest = self.newest();
        let mut facts = StackFacts::new(self.project, StackId(self.id), self.name).with_newest(newest);
        facts.deleted = self.deleted;
        if let Some(newest) = newest {
            let approvals = self.approvals.0.into_iter();
            facts.approvals = approvals.map(|approval| approval.facts(newest.sequence_id)).collect();
        }
        facts.targets = self
            .target_agents
            .into_iter()
            .zip(self.target_times)
            .map(|(agent, since)| ExplicitTarget { agent: AgentId(agent), since: since.to_jiff() })
            .collect();
        facts.selectors = self
            .selectors
            .iter()
            .zip(self.selector_times)
            .map(|(selector, since)| {
                Ok(SelectorTarget { selector: known(selector)?, since: since.to_jiff() })
            })
            .collect::<Result<_, sqlx::Error>>()?;
        Ok(facts)
    }

    fn newest(&self) -> Option<ObjectFacts> {
        Some(ObjectFacts {
            sequence_id: SequenceId(self.sequence_id?),
            checksum: checksum(self.checksum.as_deref()?),
            parsed_digest: checksum(self.parsed_digest.as_deref()?),
            is_deletion_marker: self.is_deletion_marker?,
            keeps_resources: self.keeps_resources?,
            resources: self.resources?,
            published_at: self.published_at?.to_jiff(),
        })
    }
}
