//! Writes messages to webhooks in the transaction of the change they report: both are stored, or neither.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use brokkr_api::reason::Reason;
use brokkr_api::report::{Report, Transition};
use brokkr_api::webhooks::{WebhookFilter, WebhookFormat};
use brokkr_api::why::Cause;
use brokkr_api::{AgentId, Labels, StackId, WebhookId};
use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use strum::IntoEnumIterator as _;
use uuid::Uuid;

use super::webhook_alarms::{
    AlarmKey, StoredAlarm, webhook_alarm_due_on_conn, webhook_alarm_lock_on_conn, webhook_alarm_store_on_conn,
};
use super::webhook_deliveries::{NewDelivery, is_first_of_alert, webhook_delivery_insert_on_conn};
use super::{Columns as _, Fetch as _, Result};
use crate::domain::alerts::cause::cause_of;
use crate::domain::webhooks::alarm::{Alarm, AlarmKind, Observation, step};
use crate::domain::webhooks::filter::wants;
use crate::domain::webhooks::format::WebhookMessage;
use crate::domain::webhooks::happening::{Happening, NamedAgent, NamedStack};

/// Alarms checked at once.
const ALARMS: i64 = 5000;

/// Writes a message for every webhook of the project that subscribes to it. Returns whether any was written.
pub async fn webhook_notify_on_conn(
    conn: &mut PgConnection,
    project: &str,
    happening: &Happening,
) -> Result<bool> {
    let listeners = webhook_listeners_on_conn(conn, project).await?;
    notify_on_conn(conn, project, &listeners, std::slice::from_ref(happening)).await
}

/// Writes the messages for new reports, and updates the alarms of their agents.
pub async fn webhook_notify_reports_on_conn(
    conn: &mut PgConnection,
    reports: &[(AgentId, &Report)],
    now: Timestamp,
    grace: Duration,
) -> Result<bool> {
    let mut stacks: Vec<StackId> = reports.iter().map(|(_, report)| report.stack_id).collect();
    stacks.sort_unstable();
    stacks.dedup();
    let stacks = stacks_with_webhooks_on_conn(conn, &stacks).await?;
    if stacks.is_empty() {
        return Ok(false);
    }
    let of: Vec<(&str, StackId, AgentId)> = reports
        .iter()
        .filter_map(|(agent, report)| {
            Some((stacks.get(&report.stack_id)?.0.as_str(), report.stack_id, *agent))
        })
        .collect();
    let agents = agents_on_conn(conn, of.iter().map(|(.., agent)| *agent)).await?;
    let mut alarms = webhook_alarm_lock_on_conn(conn, &of).await?;
    let mut happened: HashMap<&str, Vec<Happening>> = HashMap::new();
    let mut changed: HashSet<AlarmKey> = HashSet::new();
    for (agent, report) in reports {
        let (Some((project, stack)), Some(agent)) = (stacks.get(&report.stack_id), agents.get(agent)) else {
            continue;
        };
        let happenings = happened.entry(project).or_default();
        happenings.extend(Happening::reported(report, stack.clone(), agent.clone()));
        for kind in AlarmKind::iter() {
            let key = AlarmKey { project: project.clone(), stack: stack.id, agent: agent.id, kind };
            let before = alarms.get(&key).map_or(Alarm::Quiet, |kept| kept.alarm);
            let observation =
                if waits(report) { Observation::Time } else { Observation::Reported(&report.transition) };
            let alarm = step(kind, before, observation, now, grace);
            if alarm == before {
                continue;
            }
            let is_prolonged = alarm.count() > before.count();
            changed.insert(key.clone());
            match alarms.get_mut(&key) {
                // What happened is not about the problem, only its time has passed.
                Some(known) if !is_prolonged && alarm != Alarm::Quiet => known.alarm = alarm,
                _ => drop(alarms.insert(key, stored(alarm, report))),
            }
        }
    }
    let changed: Vec<_> = alarms.iter().filter(|(key, _)| changed.contains(*key)).collect();
    webhook_alarm_store_on_conn(conn, &changed, grace).await?;
    let mut any = false;
    for (project, happenings) in happened {
        let listeners = webhook_listeners_on_conn(conn, project).await?;
        any |= notify_on_conn(conn, project, &listeners, &happenings).await?;
    }
    Ok(any)
}

/// Updates alarms that may change by time alone.
pub async fn webhook_update_alarms_on_conn(
    conn: &mut PgConnection,
    now: Timestamp,
    grace: Duration,
) -> Result<()> {
    let mut due = webhook_alarm_due_on_conn(conn, ALARMS).await?;
    for (key, kept) in &mut due {
        kept.alarm = step(key.kind, kept.alarm, Observation::Time, now, grace);
    }
    let due: Vec<_> = due.iter().map(|(key, kept)| (key, kept)).collect();
    webhook_alarm_store_on_conn(conn, &due, grace).await
}

/// Returns the time until the next message or alarm is due, by the database's clock; none if nothing is pending. A message about an
/// alert waits for the one before it, however long that takes.
pub async fn webhook_next_due(pool: &sqlx::PgPool) -> Result<Option<Duration>> {
    let seconds: Option<f64> = sqlx::query_scalar(concat!(
        "SELECT extract(epoch FROM least(
            (SELECT m.due_at FROM webhook_deliveries m
             WHERE m.state = 'pending' AND ",
        is_first_of_alert!(),
        "
             ORDER BY m.due_at LIMIT 1),
            (SELECT min(next_check_at) FROM webhook_alarms)) - now())::float8"
    ))
    .one(pool, "find due webhook messages")
    .await?;
    Ok(seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e6))))
}

/// The part of a webhook that decides what is sent.
#[derive(Clone, Debug)]
pub struct Listener {
    pub webhook: WebhookId,
    pub format: WebhookFormat,
    pub filter: WebhookFilter,
}

/// Returns the enabled webhooks of a project.
pub async fn webhook_listeners_on_conn(conn: &mut PgConnection, project: &str) -> Result<Vec<Listener>> {
    sqlx::query("SELECT id, format, filter FROM webhooks WHERE project = $1 AND enabled ORDER BY id")
        .bind(project)
        .try_map(|row: PgRow| {
            Ok(Listener {
                webhook: WebhookId(row.field("id")?),
                format: row.known("format")?,
                filter: row.json("filter")?,
            })
        })
        .all(conn, "find webhooks")
        .await
}

async fn notify_on_conn(
    conn: &mut PgConnection,
    project: &str,
    listeners: &[Listener],
    happenings: &[Happening],
) -> Result<bool> {
    let labels = match listeners.iter().any(|listener| listener.filter.stack_selector.is_some()) {
        true => labels_on_conn(conn, project, happenings).await?,
        false => HashMap::new(),
    };
    let none = Labels::new();
    let mut new = Vec::new();
    for happening in happenings {
        let labels = happening.stack.as_ref().and_then(|stack| labels.get(&stack.id)).unwrap_or(&none);
        let wanted = |listener: &&Listener| wants(&listener.filter, listener.format, happening, labels);
        for listener in listeners.iter().filter(wanted) {
            new.push(NewDelivery {
                webhook: listener.webhook,
                event: happening.event,
                body: WebhookMessage::Happening(happening).body(listener.format, project),
                alert: None,
            });
        }
    }
    if !new.is_empty() {
        webhook_delivery_insert_on_conn(conn, project, &new).await?;
    }
    Ok(!new.is_empty())
}

/// Returns the labels of the stacks, by which messages are routed.
async fn labels_on_conn(
    conn: &mut PgConnection,
    project: &str,
    happenings: &[Happening],
) -> Result<HashMap<StackId, Labels>> {
    let stacks = happenings.iter().filter_map(|happening| happening.stack.as_ref()).map(|stack| stack.id.0);
    let rows: Vec<(Uuid, Json<Labels>)> =
        sqlx::query_as("SELECT id, labels FROM stacks WHERE project = $1 AND id = ANY($2)")
            .bind(project)
            .bind(stacks.collect::<Vec<_>>())
            .all(conn, "read the labels of stacks")
            .await?;
    Ok(rows.into_iter().map(|(id, labels)| (StackId(id), labels.0)).collect())
}

/// Returns the stacks that have an enabled webhook in their project: usually none, and then this statement is
/// the only cost.
async fn stacks_with_webhooks_on_conn(
    conn: &mut PgConnection,
    stacks: &[StackId],
) -> Result<HashMap<StackId, (String, NamedStack)>> {
    let rows: Vec<(Uuid, String, String)> = sqlx::query_as(
        "SELECT s.id, s.project, s.name FROM stacks s
         WHERE s.id = ANY($1) AND EXISTS (SELECT FROM webhooks w WHERE w.project = s.project AND w.enabled)",
    )
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .all(conn, "find stacks with webhooks")
    .await?;
    let named = |(id, project, name)| (StackId(id), (project, NamedStack { id: StackId(id), name }));
    Ok(rows.into_iter().map(named).collect())
}

async fn agents_on_conn(
    conn: &mut PgConnection,
    agents: impl IntoIterator<Item = AgentId>,
) -> Result<HashMap<AgentId, NamedAgent>> {
    let rows: Vec<(Uuid, String, Json<Labels>)> =
        sqlx::query_as("SELECT id, name, labels FROM agents WHERE id = ANY($1)")
            .bind(agents.into_iter().map(|agent| agent.0).collect::<Vec<_>>())
            .all(conn, "read the names and labels of agents")
            .await?;
    let named = |(id, name, labels): (_, _, Json<Labels>)| {
        (AgentId(id), NamedAgent { id: AgentId(id), name, labels: labels.0 })
    };
    Ok(rows.into_iter().map(named).collect())
}

/// Returns whether the agent waits as it should. It reports a failure if that takes too long.
fn waits(report: &Report) -> bool {
    report.transition == Transition::Blocked
        && matches!(report.reason, Reason::WaitingForWave { .. } | Reason::Suspended)
}

/// Returns the state of an alarm after a report.
fn stored(alarm: Alarm, report: &Report) -> StoredAlarm {
    let cause = match alarm {
        Alarm::Pending(episode) | Alarm::Lasting(episode) => {
            cause_of(episode.cause, &report.reason, &report.objects)
        }
        Alarm::Quiet => Cause::Other,
    };
    StoredAlarm {
        alarm,
        cause,
        sequence_id: report.sequence_id,
        reason: report.reason.clone(),
        message: report.message.clone(),
    }
}
