//! The facts of agents and stacks that the index needs, read as sets: after a notification those that
//! changed, and at the start of a replica all of them (`all`).

mod all;

use brokkr_api::envelope::Approval;
use brokkr_api::ids::Checksum;
use brokkr_api::suspensions::{ObjectName, Suspended};
use brokkr_api::{AgentId, InstanceId, Labels, Selector, SequenceId, StackId, SuspensionId, UpgradeId};
use futures::TryStreamExt as _;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Columns as _, Doing as _, Result, checksum, known};
use crate::domain::facts::{
    AgentFacts, AgentUpgradeFacts, ApprovalFacts, ExplicitTarget, HealthRuleFacts, ObjectFacts, RerunFacts,
    SelectorTarget, SessionFacts, StackFacts, SuspensionFacts,
};
use crate::domain::labels::LabelSet;
use crate::domain::release::{Clause, EarlierTargets, Release, Widening};
use crate::domain::windows::Windows;

pub use all::{
    AllHolds, facts_of_all_agents_on_conn, facts_of_all_stacks_on_conn, holds_of_all_agents_on_conn,
};

const NAMED_AGENTS: &str = "
    SELECT a.id, a.name, a.status, a.labels, a.labels_changed_at, a.public_key,
           a.session_count, a.session_instance, a.session_duplicated,
           a.rotation_asked_at IS NOT NULL AS new_key_wanted,
           a.upgradable_since, a.upgrade_id, a.upgrade_id IS NOT NULL AND a.upgrade_ended AS upgrade_ended,
           ARRAY(SELECT h.stack_id FROM agent_holds h
                 WHERE h.agent_id = a.id AND h.ended_at IS NULL AND h.confirmed) AS holds,
           ARRAY(SELECT h.stack_id FROM agent_holds h
                 WHERE h.agent_id = a.id AND h.ended_at IS NULL AND NOT h.confirmed) AS unconfirmed
    FROM agents a WHERE a.id = ANY($1)";

macro_rules! stacks_where {
    ($condition:literal) => {
        concat!(
            "SELECT s.project, s.id, s.name, s.deleted_at IS NOT NULL AS deleted, s.drift,
                    (SELECT h.rules FROM health_rules h WHERE h.project = s.project AND h.stack_id = s.id) AS health_rules,
                    ARRAY(SELECT t.agent_id FROM stack_targets t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.agent_id) AS target_agents,
                    ARRAY(SELECT t.created_at FROM stack_targets t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.agent_id) AS target_times,
                    ARRAY(SELECT t.selector FROM stack_selectors t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.selector) AS selectors,
                    ARRAY(SELECT t.created_at FROM stack_selectors t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.selector) AS selector_times,
                    coalesce((SELECT jsonb_agg(jsonb_build_object('sequence', p.sequence_id, 'agent', p.agent_id,
                                                                  'objects', p.objects, 'by', p.approved_by, 'at', p.created_at)
                                               ORDER BY p.sequence_id, p.agent_id)
                              FROM prune_approvals p WHERE p.project = s.project AND p.stack_id = s.id
                                AND p.sequence_id IN (s.newest_sequence_id, s.staged_sequence_id)), '[]') AS approvals,
                    coalesce((SELECT jsonb_agg(jsonb_build_object('sequence_id', j.sequence_id, 'jobs', j.rerun) ORDER BY j.sequence_id)
                              FROM deployment_objects j WHERE j.project = s.project AND j.stack_id = s.id AND j.rerun IS NOT NULL
                                AND j.sequence_id >= coalesce(s.newest_sequence_id, 0)), '[]') AS reruns,
                    coalesce((SELECT jsonb_agg(jsonb_build_object('id', u.id, 'agent', u.agent_id, 'selector', u.selector,
                                                                  'object', u.object, 'seconds', u.seconds) ORDER BY u.id)
                              FROM suspensions u WHERE u.project = s.project AND u.stack_id = s.id
                                AND u.ended_at IS NULL), '[]') AS suspensions,
                    coalesce(CASE WHEN s.staged_sequence_id IS NOT NULL THEN (
                        SELECT jsonb_agg(jsonb_build_object(
                                   'object', jsonb_build_object(
                                       'sequence_id', v.sequence_id, 'checksum', encode(v.checksum, 'hex'),
                                       'parsed_digest', encode(v.parsed_digest, 'hex'),
                                       'is_deletion_marker', v.is_deletion_marker, 'keeps_resources', v.keeps_resources,
                                       'is_urgent', v.is_urgent, 'wave_wait_seconds', v.wave_wait_seconds,
                                       'resources', v.resources, 'published_at', v.created_at),
                                   'seed', r.seed, 'open', r.is_open, 'clauses', r.clauses, 'revision', r.revision,
                                   -- They decide nothing once a newer version is rolled out.
                                   'windows', CASE WHEN r.sequence_id = s.staged_sequence_id THEN r.windows ELSE '[]' END)
                               ORDER BY r.sequence_id)
                        FROM rollouts r JOIN deployment_objects v
                          ON v.project = r.project AND v.stack_id = r.stack_id AND v.sequence_id = r.sequence_id
                        WHERE r.project = s.project AND r.stack_id = s.id AND r.widens IS NULL
                          AND r.sequence_id > coalesce(s.newest_sequence_id, 0)
                          -- What was superseded before it reached an agent concerns none.
                          AND (r.sequence_id = s.staged_sequence_id OR r.clauses <> '[]')) END, '[]') AS releases,
                    CASE WHEN s.widening_sequence_id IS NOT NULL THEN (
                        SELECT jsonb_build_object(
                                   'key', w.sequence_id, 'seed', w.seed, 'open', w.is_open, 'clauses', w.clauses,
                                   'revision', w.revision, 'windows', w.windows, 'had', w.had,
                                   'earlier', coalesce((
                                       SELECT jsonb_agg(c.clause) FROM rollouts e, jsonb_array_elements(e.clauses) AS c (clause)
                                       WHERE e.project = w.project AND e.stack_id = w.stack_id AND e.widens = w.widens
                                         AND e.sequence_id BETWEEN w.widens AND w.sequence_id - 1 AND e.had = w.had), '[]'))
                        FROM rollouts w WHERE w.project = s.project AND w.stack_id = s.id
                                          AND w.sequence_id = s.widening_sequence_id) END AS widening,
                    o.sequence_id, o.checksum, o.parsed_digest, o.is_deletion_marker, o.keeps_resources, o.is_urgent, o.wave_wait_seconds, o.resources,
                    o.created_at AS published_at
             FROM stacks s
             -- With the limit, the object is always read by its key. Without, PostgreSQL may read the whole table.
             LEFT JOIN LATERAL (
               SELECT * FROM deployment_objects o
               WHERE o.project = s.project AND o.stack_id = s.id AND o.sequence_id = s.newest_sequence_id LIMIT 1
             ) o ON true
             WHERE ",
            $condition
        )
    };
}

use stacks_where;

pub async fn facts_of_agents_on_conn(conn: &mut PgConnection, agents: &[AgentId]) -> Result<Vec<AgentFacts>> {
    let ids: Vec<Uuid> = agents.iter().map(|agent| agent.0).collect();
    sqlx::query(NAMED_AGENTS)
        .bind(ids)
        .try_map(read_agent)
        .fetch(conn)
        .try_collect()
        .await
        .doing("read changed agents")
}

pub async fn facts_of_stacks_on_conn(conn: &mut PgConnection, stacks: &[StackId]) -> Result<Vec<StackFacts>> {
    let ids: Vec<Uuid> = stacks.iter().map(|stack| stack.0).collect();
    sqlx::query(stacks_where!("s.id = ANY($1)"))
        .bind(ids)
        .try_map(read_stack)
        .fetch(conn)
        .try_collect()
        .await
        .doing("read changed stacks")
}

fn read_agent(row: PgRow) -> Result<AgentFacts, sqlx::Error> {
    let mut facts = AgentFacts {
        id: AgentId(row.field("id")?),
        name: row.field("name")?,
        status: row.known("status")?,
        labels: LabelSet::from(&row.json::<Labels>("labels")?),
        labels_changed_at: row.time("labels_changed_at")?,
        public_key: checksum(row.field("public_key")?).0,
        session: SessionFacts {
            count: row.field("session_count")?,
            instance: row.field::<Option<Uuid>>("session_instance")?.map(InstanceId),
            duplicated: row.field("session_duplicated")?,
        },
        new_key_wanted: row.field("new_key_wanted")?,
        upgrade: AgentUpgradeFacts {
            allowed_since: row.time_opt("upgradable_since")?,
            reported: row.field::<Option<i64>>("upgrade_id")?.map(UpgradeId),
            has_ended: row.field("upgrade_ended")?,
        }
        .boxed(),
        holds: Vec::new(),
        holds_digest: Checksum([0; 32]),
        unconfirmed: Box::default(),
    };
    let stacks =
        |column| Ok::<_, sqlx::Error>(row.field::<Vec<Uuid>>(column)?.into_iter().map(StackId).collect());
    facts.hold(stacks("holds")?, stacks("unconfirmed")?);
    Ok(facts)
}

#[derive(serde::Deserialize)]
struct ApprovalRow {
    sequence: SequenceId,
    agent: Option<AgentId>,
    objects: u32,
    by: String,
    at: jiff::Timestamp,
}

impl ApprovalRow {
    fn facts(self) -> ApprovalFacts {
        let (sequence_id, objects) = (self.sequence, self.objects);
        let approval = Approval { sequence_id, objects, approved_by: self.by, approved_at: self.at };
        ApprovalFacts { agent: self.agent, approval }
    }
}

#[derive(serde::Deserialize)]
struct SuspensionRow {
    id: SuspensionId,
    agent: Option<AgentId>,
    selector: Option<Selector>,
    object: Option<ObjectName>,
    seconds: u32,
}

impl SuspensionRow {
    fn facts(self) -> SuspensionFacts {
        let Self { id, agent, selector, object, seconds } = self;
        SuspensionFacts { agent, selector, suspended: Suspended { id, object, seconds } }
    }
}

#[derive(serde::Deserialize)]
struct WideningRow {
    key: SequenceId,
    seed: u64,
    open: bool,
    clauses: Vec<Clause>,
    revision: i64,
    windows: Windows,
    had: EarlierTargets,
    earlier: Vec<Clause>,
}

impl WideningRow {
    fn facts(self, base: ObjectFacts) -> Widening {
        let Self { key, seed, open, clauses, revision, windows, had, earlier } = self;
        let release = Release { object: base, seed, open, clauses, revision, windows };
        Widening { key, release, had, earlier }
    }
}

fn read_stack(row: PgRow) -> Result<StackFacts, sqlx::Error> {
    let base = read_base(&row)?;
    let widening = row.field::<Option<Json<WideningRow>>>("widening")?;
    let mut facts = StackFacts::new(row.field("project")?, StackId(row.field("id")?), row.field("name")?)
        .with_base(base)
        .with_releases(row.json::<Vec<Release>>("releases")?)
        .with_widening(base.zip(widening).map(|(base, Json(widening))| widening.facts(base)));
    facts.deleted = row.field("deleted")?;
    facts.approvals =
        row.json::<Vec<ApprovalRow>>("approvals")?.into_iter().map(ApprovalRow::facts).collect();
    facts.reruns = row.json::<Vec<RerunFacts>>("reruns")?;
    facts.suspensions =
        row.json::<Vec<SuspensionRow>>("suspensions")?.into_iter().map(SuspensionRow::facts).collect();
    let rules: Option<String> = row.field("health_rules")?;
    facts.health_rules = rules.map(|rules| Box::new(HealthRuleFacts::new(rules)));
    facts.drift = row.known("drift")?;
    let agents = row.field::<Vec<Uuid>>("target_agents")?.into_iter().map(AgentId);
    let targets = agents.zip(row.field::<Vec<jiff_sqlx::Timestamp>>("target_times")?);
    facts.targets = targets.map(|(agent, since)| ExplicitTarget { agent, since: since.to_jiff() }).collect();
    let selectors: Vec<String> = row.field("selectors")?;
    facts.selectors = selectors
        .iter()
        .zip(row.field::<Vec<jiff_sqlx::Timestamp>>("selector_times")?)
        .map(|(selector, since)| Ok(SelectorTarget { selector: known(selector)?, since: since.to_jiff() }))
        .collect::<Result<_, sqlx::Error>>()?;
    Ok(facts)
}

fn read_base(row: &PgRow) -> Result<Option<ObjectFacts>, sqlx::Error> {
    let Some(sequence_id) = row.field("sequence_id")? else { return Ok(None) };
    Ok(Some(ObjectFacts {
        sequence_id: SequenceId(sequence_id),
        checksum: checksum(row.field("checksum")?),
        parsed_digest: checksum(row.field("parsed_digest")?),
        is_deletion_marker: row.field("is_deletion_marker")?,
        keeps_resources: row.field("keeps_resources")?,
        is_urgent: row.field("is_urgent")?,
        wave_wait_seconds: row.field::<Option<i32>>("wave_wait_seconds")?.and_then(|it| it.try_into().ok()),
        resources: row.field("resources")?,
        published_at: row.time("published_at")?,
    }))
}
