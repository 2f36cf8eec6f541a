//! Writes messages to webhooks in the transaction of the change they report: both are stored, or neither.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::Report;
use brokkr_api::webhooks::{WebhookEvent, WebhookFilter};
use brokkr_api::{AgentId, Labels, StackId, WebhookId};
use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::types::Json;
use strum::IntoEnumIterator as _;
use uuid::Uuid;

use super::webhook_alarms::{
    AlarmKey, StoredAlarm, webhook_alarm_due_on_conn, webhook_alarm_lock_on_conn, webhook_alarm_store_on_conn,
};
use super::webhook_deliveries::{NewDelivery, webhook_delivery_insert_on_conn};
use super::{Fetch as _, Result};
use crate::domain::webhooks::alarm::{Alarm, AlarmKind, Notice, Observation, Trouble, step};
use crate::domain::webhooks::filter::wants;
use crate::domain::webhooks::happening::{Happening, Lasting, NamedAgent, NamedStack};

/// Alarms checked at once.
const ALARMS: i64 = 200;

/// Writes a message for every webhook of the project that subscribes to it. Returns whether any was written.
pub async fn webhook_notify_on_conn(
    conn: &mut PgConnection,
    project: &str,
    happening: &Happening,
) -> Result<bool> {
    let listeners = listeners_on_conn(conn, project).await?;
    notify_on_conn(conn, project, &listeners, std::slice::from_ref(happening)).await
}

/// Writes the messages for new reports. Also updates alarms: a failure that lasts is announced once, and once more when it
/// is over.
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
            let observation = Observation::Reported(&report.transition);
            let (alarm, notice) = step(kind, before, observation, now, grace);
            if alarm == before {
                continue;
            }
            let kept = StoredAlarm {
                alarm,
                sequence_id: report.sequence_id,
                reason: report.reason.clone(),
                message: report.message.clone(),
            };
            happenings.extend(notice.map(|notice| alert(kind, notice, now, stack, agent, &kept)));
            changed.insert(key.clone());
            alarms.insert(key, kept);
        }
    }
    let changed: Vec<_> = alarms.iter().filter(|(key, _)| changed.contains(*key)).collect();
    webhook_alarm_store_on_conn(conn, &changed, grace).await?;
    let mut any = false;
    for (project, happenings) in happened {
        let listeners = listeners_on_conn(conn, project).await?;
        any |= notify_on_conn(conn, project, &listeners, &happenings).await?;
    }
    Ok(any)
}

/// Updates alarms that may change by time alone. Returns their number.
pub async fn webhook_notify_alarms_on_conn(
    conn: &mut PgConnection,
    now: Timestamp,
    grace: Duration,
) -> Result<usize> {
    let due = webhook_alarm_due_on_conn(conn, ALARMS).await?;
    let checked = due.len();
    for (key, mut kept) in due {
        let (alarm, notice) = step(key.kind, kept.alarm, Observation::Time, now, grace);
        kept.alarm = alarm;
        webhook_alarm_store_on_conn(conn, &[(&key, &kept)], grace).await?;
        let Some(notice) = notice else { continue };
        let stack = stacks_with_webhooks_on_conn(conn, &[key.stack]).await?.remove(&key.stack);
        let agent = agents_on_conn(conn, [key.agent]).await?.remove(&key.agent);
        if let (Some((project, stack)), Some(agent)) = (stack, agent) {
            let happening = alert(key.kind, notice, now, &stack, &agent, &kept);
            webhook_notify_on_conn(conn, &project, &happening).await?;
        }
    }
    Ok(checked)
}

/// Returns the time until the next message or alarm is due, by the database's clock; none if nothing is pending.
pub async fn webhook_next_due(pool: &sqlx::PgPool) -> Result<Option<Duration>> {
    let seconds: Option<f64> = sqlx::query_scalar(
        "SELECT extract(epoch FROM least(
            (SELECT min(due_at) FROM webhook_deliveries WHERE state = 'pending'),
            (SELECT min(next_check_at) FROM webhook_alarms)) - now())::float8",
    )
    .one(pool, "find due webhook messages")
    .await?;
    Ok(seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e6))))
}

/// The part of a webhook that decides what is sent.
struct Listener {
    webhook: WebhookId,
    filter: WebhookFilter,
}

async fn listeners_on_conn(conn: &mut PgConnection, project: &str) -> Result<Vec<Listener>> {
    let rows: Vec<(Uuid, Json<WebhookFilter>)> =
        sqlx::query_as("SELECT id, filter FROM webhooks WHERE project = $1 AND enabled")
            .bind(project)
            .all(conn, "find webhooks")
            .await?;
    Ok(rows.into_iter().map(|(id, filter)| Listener { webhook: WebhookId(id), filter: filter.0 }).collect())
}

async fn notify_on_conn(
    conn: &mut PgConnection,
    project: &str,
    listeners: &[Listener],
    happenings: &[Happening],
) -> Result<bool> {
    let mut new = Vec::new();
    for happening in happenings {
        for listener in listeners.iter().filter(|listener| wants(&listener.filter, happening)) {
            new.push(NewDelivery {
                webhook: listener.webhook,
                event: happening.event,
                body: happening.body(project),
            });
        }
    }
    if !new.is_empty() {
        webhook_delivery_insert_on_conn(conn, project, &new).await?;
    }
    Ok(!new.is_empty())
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

fn alert(
    kind: AlarmKind,
    notice: Notice,
    now: Timestamp,
    stack: &NamedStack,
    agent: &NamedAgent,
    kept: &StoredAlarm,
) -> Happening {
    let (event, episode) = match (kind, notice) {
        (AlarmKind::Failure, Notice::Raised(episode)) => (WebhookEvent::FailureLasts, episode),
        (AlarmKind::Failure, Notice::Resolved(episode)) => (WebhookEvent::FailureResolved, episode),
        (AlarmKind::Drift, Notice::Raised(episode)) => (WebhookEvent::DriftLasts, episode),
        (AlarmKind::Drift, Notice::Resolved(episode)) => (WebhookEvent::DriftResolved, episode),
    };
    // A resolved alarm has neither reason nor message: the stored ones may be those of the report that ended
    // it.
    let over = matches!(notice, Notice::Resolved(_));
    let reason = if over || episode.cause == Trouble::Repaired { Reason::None } else { kept.reason.clone() };
    Happening {
        agent: Some(agent.clone()),
        reason,
        message: if over { Message::default() } else { kept.message.clone() },
        lasting: Some(Lasting { since: episode.since, count: episode.count }),
        ..Happening::of_stack(event, now, stack.clone(), kept.sequence_id)
    }
}
