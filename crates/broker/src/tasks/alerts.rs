//! Sends alerts: groups agents by stack and cause, and writes the messages that are due.
//!
//! Waits for: a timer (1 s; without alerts 5 s). One replica at a time does this, under a lease; each transaction checks the lease's
//! fencing token. The state of an alert and its message are written in one transaction, so a crash or a take-over neither
//! repeats nor loses a message. Each look compares the agents with the stored state, so nothing depends on having seen a
//! change.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::why::Cause;
use brokkr_api::{AgentId, StackId};
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::alerts::group::{Group, Notice, is_forgotten, step};
use crate::domain::alerts::message::{AlertMessage, AlertSubject, Examples};
use crate::domain::webhooks::filter::{selects_agents, wants_agent, wants_event, wants_stack};
use crate::domain::webhooks::format::WebhookMessage;
use crate::domain::webhooks::happening::NamedStack;
use crate::state::Broker;
use crate::store::alerts::{
    AlertKey, FailingAgents, alert_agents_on_conn, alert_delete_on_conn, alert_examples_on_conn,
    alert_failing_on_conn, alert_fetch_on_conn, alert_projects, alert_store_on_conn,
};
use crate::store::leases::{Lease, lease_hold_at_on_conn, lease_release_on_conn, lease_take_on_conn};
use crate::store::webhook_alarms::webhook_alarm_delete_unwatched_on_conn;
use crate::store::webhook_deliveries::{NewDelivery, webhook_delivery_insert_on_conn};
use crate::store::webhook_notices::{Listener, webhook_listeners_on_conn};
use crate::store::{Doing as _, StoreError};

/// The name of the lease. Its holder is the only one that sends alerts.
pub const LEASE: &str = "alerts";
const LEASE_SECONDS: f64 = 10.0;
const EVERY: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(5);
/// How often alarms that no webhook wants are deleted.
const CLEANED_EVERY: Duration = Duration::from_secs(60);
/// After looks that take long, the pause is longer, so that they take only a part of the time.
const PART: u32 = 10;

pub async fn run(broker: Arc<Broker>, pool: PgPool, stop: CancellationToken) {
    let holder = Uuid::now_v7();
    let mut lease = None;
    let mut cleaned: Option<Instant> = None;
    loop {
        let started = Instant::now();
        match round(&broker, &pool, holder, &mut cleaned).await {
            Ok(held) => lease = held,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "failed to look for alerts; will retry");
            }
        }
        let pause = if lease.is_some() { EVERY } else { IDLE };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause.max(started.elapsed() * PART)) => {}
        }
    }
    if let Some(lease) = lease
        && let Ok(mut connection) = pool.acquire().await
    {
        // Without this, the next replica would have to wait until the lease expires.
        let _ = lease_release_on_conn(&mut connection, lease).await;
    }
}

/// Looks at every project, if this replica has the lease.
async fn round(
    broker: &Broker,
    pool: &PgPool,
    holder: Uuid,
    cleaned: &mut Option<Instant>,
) -> Result<Option<Lease>, StoreError> {
    let projects = alert_projects(pool).await?;
    if projects.is_empty() {
        return Ok(None);
    }
    let mut connection = pool.acquire().await.doing("look for alerts")?;
    let lease = lease_take_on_conn(&mut connection, LEASE, holder, LEASE_SECONDS).await?;
    let Some(lease) = lease else { return Ok(None) };
    // It reads every alarm.
    if cleaned.is_none_or(|at| at.elapsed() >= CLEANED_EVERY) {
        webhook_alarm_delete_unwatched_on_conn(&mut connection).await?;
        *cleaned = Some(Instant::now());
    }
    drop(connection);
    for project in projects {
        match look(broker, pool, lease, &project).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(project, error, "failed to look for alerts of a project; will retry");
            }
        }
    }
    Ok(Some(lease))
}

/// Writes the messages of a project that are due. Returns false if another replica has the lease.
async fn look(broker: &Broker, pool: &PgPool, lease: Lease, project: &str) -> Result<bool, StoreError> {
    // Counting takes long in a large fleet: outside of the transaction, which would delay every change of others until it ends.
    let mut connection = pool.acquire().await.doing("look for alerts of a project")?;
    let mut listeners = webhook_listeners_on_conn(&mut connection, project).await?;
    listeners.retain(wants_alerts);
    let failing = alert_failing_on_conn(&mut connection, project).await?;
    let mut agents = AgentsOfGroups::default();
    for listener in listeners.iter().filter(|listener| selects_agents(&listener.filter)) {
        for group in failing.iter().filter(|group| concerns(listener, group)) {
            agents.read(&mut connection, project, group).await?;
        }
    }
    drop(connection);
    let mut transaction = pool.begin().await.doing("begin to write alerts")?;
    let conn = &mut *transaction;
    let Some(now) = lease_hold_at_on_conn(conn, lease, LEASE_SECONDS).await? else { return Ok(false) };
    let mut stored = alert_fetch_on_conn(conn, project).await?;
    let timing = broker.webhooks.alert_timing;
    let mut new = Vec::new();
    for listener in &listeners {
        for (key, stack, group) in groups(listener, &failing, &stored) {
            let (count, among) = group.map_or((0, None), |group| agents.of(broker, listener, group));
            let before = stored.remove(&key).map(|(_, group)| group);
            let (after, notice) = step(before.unwrap_or_default(), count, now, timing, Uuid::now_v7());
            store(conn, project, key, before, &after, is_forgotten(&after, now, timing)).await?;
            let Some(notice) = notice else { continue };
            let subject = AlertSubject { project: project.to_owned(), stack, cause: key.cause };
            let examples = match notice {
                Notice::Resolved(_) => Examples::default(),
                Notice::Opened(_) | Notice::Updated { .. } => {
                    alert_examples_on_conn(conn, project, key.stack, key.cause, among.as_deref()).await?
                }
            };
            let alert = AlertMessage { subject, notice, at: now, examples };
            tracing::info!(
                project, webhook = %listener.webhook, stack_id = %key.stack, cause = %key.cause, agents = alert.agents(),
                event = %alert.event(), "an alert is due"
            );
            if wants_event(&listener.filter, listener.format, alert.event()) {
                let body = WebhookMessage::Alert(&alert).body(listener.format, project);
                let (webhook, event, alert) = (listener.webhook, alert.event(), Some(alert.id()));
                new.push(NewDelivery { webhook, event, body, alert });
            }
        }
    }
    // Of webhooks that are disabled or do not want alerts any more.
    for key in stored.into_keys() {
        alert_delete_on_conn(conn, project, key).await?;
    }
    if !new.is_empty() {
        webhook_delivery_insert_on_conn(conn, project, &new).await?;
    }
    transaction.commit().await.doing("commit alerts")?;
    if !new.is_empty() {
        broker.webhooks.notify();
    }
    Ok(true)
}

fn wants_alerts(listener: &Listener) -> bool {
    use brokkr_api::webhooks::WebhookEvent::{AlertOpened, AlertResolved, AlertUpdated};
    [AlertOpened, AlertUpdated, AlertResolved]
        .into_iter()
        .any(|event| wants_event(&listener.filter, listener.format, event))
}

fn concerns(listener: &Listener, group: &FailingAgents) -> bool {
    wants_stack(&listener.filter, Some((&group.stack, &group.labels)))
}

/// Returns the groups that concern a webhook: those with failing agents, and those with a stored state.
fn groups<'a>(
    listener: &Listener,
    failing: &'a [FailingAgents],
    stored: &HashMap<AlertKey, (NamedStack, Group)>,
) -> Vec<(AlertKey, NamedStack, Option<&'a FailingAgents>)> {
    let key_of = |stack: StackId, cause: Cause| AlertKey { webhook: listener.webhook, stack, cause };
    let wanted = failing
        .iter()
        .filter(|group| concerns(listener, group))
        .map(|group| (key_of(group.stack.id, group.cause), group.stack.clone(), Some(group)));
    let mut groups: Vec<_> = wanted.collect();
    let is_listed: std::collections::HashSet<AlertKey> = groups.iter().map(|(key, ..)| *key).collect();
    let others =
        stored.iter().filter(|(key, _)| key.webhook == listener.webhook && !is_listed.contains(*key));
    groups.extend(others.map(|(key, (stack, _))| (*key, stack.clone(), None)));
    groups
}

/// Stores the state of a group, if it has changed.
async fn store(
    conn: &mut PgConnection,
    project: &str,
    key: AlertKey,
    before: Option<Group>,
    after: &Group,
    forgotten: bool,
) -> Result<(), StoreError> {
    match (before, forgotten) {
        (None, true) => Ok(()),
        (Some(_), true) => alert_delete_on_conn(conn, project, key).await,
        (Some(before), false) if before == *after => Ok(()),
        (_, false) => alert_store_on_conn(conn, project, key, after).await,
    }
}

/// The agents of groups, read only for webhooks that select some agents.
#[derive(Default)]
struct AgentsOfGroups(HashMap<(StackId, Cause), BTreeSet<AgentId>>);

impl AgentsOfGroups {
    /// Reads the agents of a group, once.
    async fn read(
        &mut self,
        conn: &mut PgConnection,
        project: &str,
        group: &FailingAgents,
    ) -> Result<(), StoreError> {
        if let Entry::Vacant(unread) = self.0.entry((group.stack.id, group.cause)) {
            let agents = alert_agents_on_conn(conn, project, group.stack.id, group.cause).await?;
            unread.insert(agents.into_iter().collect());
        }
        Ok(())
    }

    /// Returns how many agents of a group concern the webhook, and which, unless all do.
    fn of(&self, broker: &Broker, listener: &Listener, group: &FailingAgents) -> (u32, Option<Vec<AgentId>>) {
        if !selects_agents(&listener.filter) {
            return (group.agents, None);
        }
        let snapshot = broker.index.snapshot();
        let wanted = |id: &&AgentId| {
            snapshot.agent(**id).is_some_and(|agent| {
                wants_agent(&listener.filter, agent.id, &agent.name, |selector| agent.matches(selector))
            })
        };
        let agents = self.0.get(&(group.stack.id, group.cause));
        let among: Vec<AgentId> = agents.into_iter().flatten().filter(wanted).copied().collect();
        (u32::try_from(among.len()).unwrap_or(u32::MAX), Some(among))
    }
}
