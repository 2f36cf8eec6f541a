//! `brokkr admin preflight`: fetches the data that `crate::preflight` evaluates, concurrently and with limits.

use brokkr_api::agents::Agent;
use brokkr_api::health::Health;
use brokkr_api::tokens::WhoAmI;
use brokkr_api::webhooks::{DeliveryState, Webhook};
use brokkr_api::why::{Cause, Presence};
use brokkr_client::{AgentQuery, Client, ClientError, PageQuery};
use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::args::Global;
use crate::connect::{Replicas, connect_to_replicas};
use crate::failure::{Outcome, Result};
use crate::preflight::{
    AuditProgress, FetchError, Fetched, Fleet, Group, PreflightData, Replica, Verdict, WebhookHealth, checks,
};
use crate::printer::Printer;
use crate::view::checks::Checks;
use crate::view::whole;

/// Concurrent requests of one kind.
const CONCURRENCY: usize = 8;
/// Agents that are examined for refused requests.
const MOST_EXAMINED: usize = 40;
/// Dead letters that are counted per webhook.
const MOST_DEAD_LETTERS: u32 = 50;
/// Pages of the audit chain that are verified; each has 10,000 entries.
const MOST_AUDIT_PAGES: usize = 20;

pub async fn run(global: &Global, printer: Printer) -> Result<Outcome> {
    let replicas = connect_to_replicas(global).await?;
    let data = printer.with_spinner("checking", Box::pin(fetch(&replicas))).await;
    let checks = checks(&data, Timestamp::now());
    let has_failed = checks.iter().any(|check| check.verdict == Verdict::Failed);
    printer.show(&Checks(whole(checks)))?;
    Ok(if has_failed { Outcome::Negative } else { Outcome::Success })
}

pub async fn fetch(replicas: &Replicas) -> PreflightData {
    let client = &replicas.client;
    let whoami = client.whoami().await;
    let is_reached = matches!(&whoami, Ok(_) | Err(ClientError::Problem { .. }));
    let is_refused = matches!(&whoami, Err(ClientError::Problem { problem, .. }) if problem.status == 401);
    let caller = whoami.map_err(FetchError::from);
    let (server, version) = (client.base().to_string(), env!("CARGO_PKG_VERSION").to_owned());
    if !is_reached {
        return only_connection(server, version, caller.map(|_| ()), Err(FetchError::Skipped));
    }
    if is_refused {
        return only_connection(server, version, Ok(()), caller);
    }
    let largest = PageQuery::largest();
    let (replicas, system, fleet, pending_deletions, errors, tokens, hooks, audit) = tokio::join!(
        each(replicas.each.clone(), readiness),
        client.system(),
        fleet(client),
        client.stacks_owed_all(),
        client.errors(None, &largest),
        client.api_tokens_all(),
        hooks(client),
        verify_audit(client),
    );
    PreflightData {
        server,
        version,
        reached: Ok(()),
        caller,
        replicas: reachable_families(replicas),
        system: system.map_err(FetchError::from),
        fleet: fleet.map_err(FetchError::from),
        pending_deletions: pending_deletions.map_err(FetchError::from),
        errors: errors.map(|page| page.items).map_err(FetchError::from),
        tokens: tokens.map_err(FetchError::from),
        hooks: hooks.map_err(FetchError::from),
        audit: audit.map_err(FetchError::from),
    }
}

fn only_connection(
    server: String,
    version: String,
    reached: Fetched<()>,
    caller: Fetched<WhoAmI>,
) -> PreflightData {
    PreflightData {
        server,
        version,
        reached,
        caller,
        replicas: Vec::new(),
        system: Err(FetchError::Skipped),
        fleet: Err(FetchError::Skipped),
        pending_deletions: Err(FetchError::Skipped),
        errors: Err(FetchError::Skipped),
        tokens: Err(FetchError::Skipped),
        hooks: Err(FetchError::Skipped),
        audit: Err(FetchError::Skipped),
    }
}

type Ready = (String, Result<Health, ClientError>);

async fn readiness((address, client): (String, Client)) -> Ready {
    let health = client.ready().await;
    (address, health)
}

/// Drops all IPv4 addresses if none of them is reachable but an IPv6 address responds, and vice versa: this
/// machine then has no route to the dropped ones.
fn reachable_families(mut replicas: Vec<Ready>) -> Vec<Replica> {
    let is_v6 = |(address, _): &Ready| address.starts_with('[');
    let is_unreachable = |(_, health): &Ready| {
        matches!(health, Err(ClientError::Unreachable { .. } | ClientError::Timeout { .. }))
    };
    for v6 in [true, false] {
        let other_family_responds = replicas.iter().any(|one| is_v6(one) != v6 && one.1.is_ok());
        if other_family_responds && replicas.iter().filter(|one| is_v6(one) == v6).all(is_unreachable) {
            replicas.retain(|one| is_v6(one) != v6);
        }
    }
    let replica = |(address, health): Ready| Replica { address, health: health.map_err(FetchError::from) };
    replicas.into_iter().map(replica).collect()
}

/// Reads the first page of silent, never connected and late agents, and examines some of them.
async fn fleet(client: &Client) -> Result<Fleet, ClientError> {
    let ask = async |presence: Option<Presence>, page: PageQuery| {
        let query = AgentQuery { presence, ..AgentQuery::default() };
        client.agents_where_counted(&query, &page).await
    };
    let one = PageQuery { limit: Some(1), after: None };
    let (all, silent, never, late) = tokio::try_join!(
        ask(None, one),
        ask(Some(Presence::Silent), PageQuery::largest()),
        ask(Some(Presence::Never), PageQuery::largest()),
        ask(Some(Presence::Late), PageQuery::largest()),
    )?;
    let is_revoked = |agent: &&Agent| agent.revoked_at.is_some() && agent.abandoned.is_none();
    let is_expected = |agent: &&Agent| agent.revoked_at.is_none() && agent.abandoned.is_none();
    let every = || [&silent, &never, &late].into_iter().flat_map(|page| &page.items);
    let names =
        |agents: Vec<&Agent>| agents.into_iter().map(|agent| agent.name.to_string()).collect::<Vec<_>>();
    let group = |page: &brokkr_api::page::Page<Agent>| {
        let names = names(page.items.iter().filter(is_expected).collect());
        // Revoked agents are only recognised on the first page.
        let number = match (&page.next, page.total) {
            (Some(_), Some(total)) => total,
            _ => names.len() as u64,
        };
        Group { number, names }
    };
    let mut suspects: Vec<(String, Client)> =
        names(every().filter(is_expected).collect()).into_iter().map(|name| (name, client.clone())).collect();
    let not_examined = suspects.len().saturating_sub(MOST_EXAMINED);
    suspects.truncate(MOST_EXAMINED);
    Ok(Fleet {
        agents: all.total.unwrap_or_default(),
        silent: group(&silent),
        never: group(&never),
        refused: each(suspects, refused).await.into_iter().flatten().collect(),
        not_examined,
        revoked: names(every().filter(is_revoked).collect()),
    })
}

/// Returns the agent's name if its requests are refused.
async fn refused((agent, client): (String, Client)) -> Option<String> {
    let broken = client.agent_why(&agent).await.ok()?.broken?;
    (broken.cause == Cause::AgentRefused).then_some(agent)
}

pub async fn hooks(client: &Client) -> Result<Vec<WebhookHealth>, ClientError> {
    let hooks = client.webhooks_all().await?;
    let requests = hooks.into_iter().map(|hook| (hook, client.clone())).collect();
    each(requests, hook).await.into_iter().collect()
}

async fn hook((webhook, client): (Webhook, Client)) -> Result<WebhookHealth, ClientError> {
    let page = PageQuery { limit: Some(MOST_DEAD_LETTERS), after: None };
    let dead = client.deliveries(&webhook.id.to_string(), Some(DeliveryState::Dead), &page).await?;
    Ok(WebhookHealth {
        name: webhook.name.to_string(),
        disabled_because: webhook.disabled_because.filter(|_| !webhook.enabled),
        dead: dead.items.len(),
        more: dead.next.is_some(),
    })
}

async fn verify_audit(client: &Client) -> Result<AuditProgress, ClientError> {
    let mut progress = AuditProgress { links: 0, broken: None, is_complete: false };
    let mut after = None;
    for _ in 0..MOST_AUDIT_PAGES {
        let part = client.audit_verify(after).await?;
        progress.links += part.links;
        progress.broken = part.broken;
        after = part.next;
        if progress.broken.is_some() || after.is_none() {
            progress.is_complete = after.is_none();
            break;
        }
    }
    Ok(progress)
}

/// Calls `request` for each item, at most `CONCURRENCY` at a time, and returns the results in order.
pub async fn each<T, R, Request>(items: Vec<T>, request: impl Fn(T) -> Request) -> Vec<R>
where
    R: Send + 'static,
    Request: Future<Output = R> + Send + 'static,
{
    let mut results = Vec::with_capacity(items.len());
    let mut items = items.into_iter().enumerate();
    let mut open = JoinSet::new();
    loop {
        while open.len() < CONCURRENCY
            && let Some((at, item)) = items.next()
        {
            let pending = request(item);
            open.spawn(async move { (at, pending.await) });
        }
        match open.join_next().await {
            None => break,
            Some(result) => results.extend(result.ok()),
        }
    }
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
