//! `brokkr admin preflight`: asks what `crate::preflight` judges. Reads only; everything at once, and not too much of it.

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
use crate::failure::{Answer, Failure};
use crate::preflight::{Answers, Asked, Fleet, Group, Hook, Replica, Unanswered, Verdict, Walk, checks};
use crate::printer::Printer;
use crate::view::checks::Checks;
use crate::view::whole;

/// Questions of one kind that are open at a time.
const AT_ONCE: usize = 8;
/// Agents that are asked why they do not come.
const SUSPECTS: usize = 40;
/// Dead letters of a webhook that are counted.
const DEAD: u32 = 50;
/// Parts of the audit chain that are walked; each is ten thousand links.
const PARTS: usize = 20;

pub async fn run(global: &Global, printer: Printer) -> Result<Answer, Failure> {
    let replicas = connect_to_replicas(global).await?;
    let answers = printer.patiently("looking at the broker", Box::pin(ask(&replicas))).await;
    let checks = checks(&answers, Timestamp::now());
    let is_bad = checks.iter().any(|check| check.verdict == Verdict::Bad);
    printer.show(&Checks(whole(checks)))?;
    Ok(if is_bad { Answer::No } else { Answer::Yes })
}

pub async fn ask(replicas: &Replicas) -> Answers {
    let client = &replicas.client;
    let whoami = client.whoami().await;
    let is_reached = matches!(&whoami, Ok(_) | Err(ClientError::Problem { .. }));
    let is_refused = matches!(&whoami, Err(ClientError::Problem { problem, .. }) if problem.status == 401);
    let caller = whoami.map_err(Unanswered::from);
    let (server, version) = (client.base().to_string(), env!("CARGO_PKG_VERSION").to_owned());
    if !is_reached {
        return nothing_more(server, version, caller.map(|_| ()), Err(Unanswered::NotAsked));
    }
    if is_refused {
        return nothing_more(server, version, Ok(()), caller);
    }
    let largest = PageQuery::largest();
    let (replicas, system, fleet, owed, errors, tokens, hooks, audit) = tokio::join!(
        each(replicas.each.clone(), readiness),
        client.system(),
        fleet(client),
        client.stacks_owed_all(),
        client.errors(None, &largest),
        client.api_tokens_all(),
        hooks(client),
        walk(client),
    );
    Answers {
        server,
        version,
        reached: Ok(()),
        caller,
        replicas: of_families_that_lead_somewhere(replicas),
        system: system.map_err(Unanswered::from),
        fleet: fleet.map_err(Unanswered::from),
        owed: owed.map_err(Unanswered::from),
        errors: errors.map(|page| page.items).map_err(Unanswered::from),
        tokens: tokens.map_err(Unanswered::from),
        hooks: hooks.map_err(Unanswered::from),
        audit: audit.map_err(Unanswered::from),
    }
}

fn nothing_more(server: String, version: String, reached: Asked<()>, caller: Asked<WhoAmI>) -> Answers {
    Answers {
        server,
        version,
        reached,
        caller,
        replicas: Vec::new(),
        system: Err(Unanswered::NotAsked),
        fleet: Err(Unanswered::NotAsked),
        owed: Err(Unanswered::NotAsked),
        errors: Err(Unanswered::NotAsked),
        tokens: Err(Unanswered::NotAsked),
        hooks: Err(Unanswered::NotAsked),
        audit: Err(Unanswered::NotAsked),
    }
}

type Ready = (String, Result<Health, ClientError>);

async fn readiness((address, client): (String, Client)) -> Ready {
    let health = client.ready().await;
    (address, health)
}

/// A name may have addresses of both families where only one of them leads anywhere: that is nobody's trouble.
fn of_families_that_lead_somewhere(mut asked: Vec<Ready>) -> Vec<Replica> {
    let is_v6 = |(address, _): &Ready| address.starts_with('[');
    let is_cut_off = |(_, health): &Ready| {
        matches!(health, Err(ClientError::Unreachable { .. } | ClientError::Timeout { .. }))
    };
    for family in [true, false] {
        let answers = asked.iter().any(|one| is_v6(one) != family && one.1.is_ok());
        if answers && asked.iter().filter(|one| is_v6(one) == family).all(is_cut_off) {
            asked.retain(|one| is_v6(one) != family);
        }
    }
    let replica = |(address, health): Ready| Replica { address, health: health.map_err(Unanswered::from) };
    asked.into_iter().map(replica).collect()
}

/// The first page of each sort of agents that do not come, and why some of them do not.
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
    let is_missed = |agent: &&Agent| agent.revoked_at.is_none() && agent.abandoned.is_none();
    let every = || [&silent, &never, &late].into_iter().flat_map(|page| &page.items);
    let names =
        |agents: Vec<&Agent>| agents.into_iter().map(|agent| agent.name.to_string()).collect::<Vec<_>>();
    let group = |page: &brokkr_api::page::Page<Agent>| {
        let names = names(page.items.iter().filter(is_missed).collect());
        // Beyond the first page nobody looked who was let go.
        let number = match (&page.next, page.total) {
            (Some(_), Some(total)) => total,
            _ => names.len() as u64,
        };
        Group { number, names }
    };
    let mut suspects: Vec<(String, Client)> =
        names(every().filter(is_missed).collect()).into_iter().map(|name| (name, client.clone())).collect();
    let not_asked = suspects.len().saturating_sub(SUSPECTS);
    suspects.truncate(SUSPECTS);
    Ok(Fleet {
        agents: all.total.unwrap_or_default(),
        silent: group(&silent),
        never: group(&never),
        refused: each(suspects, refused).await.into_iter().flatten().collect(),
        not_asked,
        revoked: names(every().filter(is_revoked).collect()),
    })
}

/// The agent's name, if somebody comes in it and is refused.
async fn refused((agent, client): (String, Client)) -> Option<String> {
    let broken = client.agent_why(&agent).await.ok()?.broken?;
    (broken.cause == Cause::AgentRefused).then_some(agent)
}

pub async fn hooks(client: &Client) -> Result<Vec<Hook>, ClientError> {
    let hooks = client.webhooks_all().await?;
    let asked = hooks.into_iter().map(|hook| (hook, client.clone())).collect();
    each(asked, hook).await.into_iter().collect()
}

async fn hook((webhook, client): (Webhook, Client)) -> Result<Hook, ClientError> {
    let page = PageQuery { limit: Some(DEAD), after: None };
    let dead = client.deliveries(&webhook.id.to_string(), Some(DeliveryState::Dead), &page).await?;
    Ok(Hook {
        name: webhook.name.to_string(),
        off_because: webhook.disabled_because.filter(|_| !webhook.enabled),
        dead: dead.items.len(),
        more: dead.next.is_some(),
    })
}

async fn walk(client: &Client) -> Result<Walk, ClientError> {
    let mut walk = Walk { links: 0, broken: None, whole: false };
    let mut after = None;
    for _ in 0..PARTS {
        let part = client.audit_verify(after).await?;
        walk.links += part.links;
        walk.broken = part.broken;
        after = part.next;
        if walk.broken.is_some() || after.is_none() {
            walk.whole = after.is_none();
            break;
        }
    }
    Ok(walk)
}

/// Asks about each, some at a time, and answers in their order.
pub async fn each<T, R, Asking>(asked: Vec<T>, ask: impl Fn(T) -> Asking) -> Vec<R>
where
    R: Send + 'static,
    Asking: Future<Output = R> + Send + 'static,
{
    let mut answers = Vec::with_capacity(asked.len());
    let mut asked = asked.into_iter().enumerate();
    let mut open = JoinSet::new();
    loop {
        while open.len() < AT_ONCE
            && let Some((at, one)) = asked.next()
        {
            let asking = ask(one);
            open.spawn(async move { (at, asking.await) });
        }
        match open.join_next().await {
            None => break,
            Some(answer) => answers.extend(answer.ok()),
        }
    }
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
