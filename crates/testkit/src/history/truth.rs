//! The final state, read from the database and from every replica.

use anyhow::{Context as _, Result};
use brokkr_api::ids::Checksum;
use brokkr_api::selector::Selector;
use brokkr_api::{AgentId, EventId, Labels, SequenceId, StackId};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    pub stack: StackId,
    pub sequence: SequenceId,
    /// The stored checksum.
    pub checksum: Checksum,
    /// The checksum of the stored bytes.
    pub content: Checksum,
    pub is_deletion_marker: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRow {
    pub id: StackId,
    pub name: String,
    pub newest: Option<SequenceId>,
    pub deleted: bool,
    pub selectors: Vec<String>,
}

/// The stacks that a replica serves to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub replica: usize,
    pub agent: AgentId,
    pub stacks: Vec<(StackId, SequenceId)>,
}

#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub objects: Vec<ObjectRow>,
    pub stacks: Vec<StackRow>,
    pub agents: Vec<(AgentId, Labels)>,
    /// With duplicates, if there are any.
    pub events: Vec<EventId>,
    /// The object of each message to the webhook; none if there is no webhook.
    pub messages: Option<Vec<SequenceId>>,
    /// The number of submissions in the audit log.
    pub audited_submissions: usize,
    pub views: Vec<View>,
}

impl Truth {
    /// Reads the database; the views are added by the caller.
    pub async fn read(connection: &mut PgConnection) -> Result<Self> {
        type Object = (Uuid, i64, Vec<u8>, Vec<u8>, bool);
        /// Id, name, newest sequence id, whether it is deleted, and its selectors.
        type Stack = (Uuid, String, Option<i64>, bool, Vec<String>);
        let objects: Vec<Object> = sqlx::query_as(
            "SELECT stack_id, sequence_id, checksum, content, is_deletion_marker FROM deployment_objects
             ORDER BY sequence_id",
        )
        .fetch_all(&mut *connection)
        .await
        .context("cannot read the deployment objects")?;
        let stacks: Vec<Stack> = sqlx::query_as(
            "SELECT s.id, s.name, s.newest_sequence_id, s.deleted_at IS NOT NULL,
                    ARRAY(SELECT t.selector FROM stack_selectors t WHERE t.stack_id = s.id ORDER BY 1)
             FROM stacks s ORDER BY s.id",
        )
        .fetch_all(&mut *connection)
        .await
        .context("cannot read the stacks")?;
        let agents: Vec<(Uuid, Json<Labels>)> = sqlx::query_as("SELECT id, labels FROM agents ORDER BY id")
            .fetch_all(&mut *connection)
            .await
            .context("cannot read the agents")?;
        let events: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM events ORDER BY id")
            .fetch_all(&mut *connection)
            .await
            .context("cannot read the events")?;
        let has_webhook: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM webhooks)")
            .fetch_one(&mut *connection)
            .await
            .context("cannot read the webhooks")?;
        let messages: Vec<i64> = sqlx::query_scalar(
            "SELECT (body->'data'->>'sequence_id')::bigint FROM webhook_deliveries
             WHERE event IN ('deployment_object.submitted', 'stack.deleted') ORDER BY 1",
        )
        .fetch_all(&mut *connection)
        .await
        .context("cannot read the messages to webhooks")?;
        let audited: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM audit
             WHERE kind = 'change' AND method = 'POST' AND route LIKE '%/deployment-objects' AND status = 201",
        )
        .fetch_one(&mut *connection)
        .await
        .context("cannot read the audit log")?;
        Ok(Self {
            messages: has_webhook.then(|| messages.into_iter().map(SequenceId).collect()),
            audited_submissions: usize::try_from(audited)?,
            objects: objects
                .into_iter()
                .map(|(stack, sequence, checksum, content, is_deletion_marker)| ObjectRow {
                    stack: StackId(stack),
                    sequence: SequenceId(sequence),
                    checksum: Checksum(checksum.try_into().unwrap_or_default()),
                    content: Checksum::of(&content),
                    is_deletion_marker,
                })
                .collect(),
            stacks: stacks
                .into_iter()
                .map(|(id, name, newest, deleted, selectors)| StackRow {
                    id: StackId(id),
                    name,
                    newest: newest.map(SequenceId),
                    deleted,
                    selectors,
                })
                .collect(),
            agents: agents.into_iter().map(|(id, labels)| (AgentId(id), labels.0)).collect(),
            events: events.into_iter().map(EventId).collect(),
            views: Vec::new(),
        })
    }

    /// Returns the stacks for an agent that holds nothing, ordered by sequence id.
    pub fn wanted(&self, agent: AgentId) -> Vec<(StackId, SequenceId)> {
        let Some((_, labels)) = self.agents.iter().find(|(id, _)| *id == agent) else { return Vec::new() };
        let reaches = |stack: &&StackRow| !stack.deleted && any_matches(&stack.selectors, labels);
        let mut wanted: Vec<_> =
            self.stacks.iter().filter(reaches).filter_map(|stack| Some((stack.id, stack.newest?))).collect();
        wanted.sort_by_key(|(_, sequence)| *sequence);
        wanted
    }
}

/// Returns whether one of the selectors matches these labels.
pub(super) fn any_matches(selectors: &[String], labels: &Labels) -> bool {
    selectors.iter().any(|text| text.parse::<Selector>().is_ok_and(|one| one.matches(labels)))
}
