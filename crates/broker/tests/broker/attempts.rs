//! J1, J2: every route of an agent, in every situation in which an attacker may have an agent's key, against two replicas
//! under load. `cargo xtask hostile` runs this test and prints its figures.
//!
//! A violation names the route, the situation and what happened: `METHOD /path × situation: accepted with 200`. The
//! deliberate bugs in `crates/e2e/bugs/hostile` name the violations by which they have to be found.
//!
//! ```text
//! attempts/situation.rs   what is wrong about a request, and what has to happen then
//! attempts/request.rs     the requests
//! attempts/world.rs       projects, stacks, and agents of the attacker and of others
//! attempts/others.rs      what belongs to others, as rows of the database
//! attempts/load.rs        live agents and users
//! attempts/replica.rs     a replica as a process
//! ```

mod load;
mod others;
mod replica;
mod request;
mod situation;
mod world;

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_broker::access::Permission;
use brokkr_broker::router::{self, Route};
use brokkr_testkit::{Attempt as Tried, eventually};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use others::OthersRows;
use replica::Replica;
use request::Attempt;
use situation::{Expected, Situation};
use world::World;

/// How much more memory a replica may have than before the first attempt.
const MEMORY: u64 = 64 << 20;
/// After this number of violations, more of them say nothing new.
const ENOUGH: usize = 100;

/// The routes that agents may use.
fn routes() -> Vec<Route> {
    let is_for_agents = |permission| {
        matches!(permission, Permission::Agent | Permission::AgentOr(_) | Permission::AnyAgentOr(_))
    };
    router::table().into_iter().filter(|route| is_for_agents(route.permission)).collect()
}

/// The response to the last request of an attempt.
struct Answer {
    status: u16,
    text: String,
    json: Value,
    /// How many responses of the attempt were refusals.
    refusals: u64,
}

impl Answer {
    fn reports(&self, list: &str) -> usize {
        self.json[list].as_array().map_or(0, Vec::len)
    }
}

async fn send(attempt: &Attempt<'_>, replica: &Replica, leaks: &mut Vec<String>) -> Result<Answer> {
    let client = Client::builder().no_proxy().no_gzip().build()?;
    let (mut last, mut refusals) = (None, 0);
    for request in attempt.requests(replica)? {
        let response = client.execute(request).await?;
        let (status, head) = (response.status().as_u16(), format!("{:?}", response.headers()));
        let text = response.text().await?;
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let in_receipt = json["refused"].as_array().map_or(0, Vec::len) as u64;
        refusals += if (400..500).contains(&status) { 1 } else { in_receipt };
        leaks.extend(attempt.world.leaks(&format!("{head}{text}")));
        last = Some(Answer { status, text, json, refusals });
    }
    last.context("no request")
}

/// Returns why the response is wrong, if it is.
fn judge(attempt: &Attempt<'_>, answer: &Answer) -> Option<String> {
    let Answer { status, text, .. } = answer;
    let is_refused = (400..500).contains(status);
    let got = attempt.situation == Situation::Inactive
        && attempt.route.name.ends_with("/target-state")
        && answer
            .json
            .as_array()
            .or(answer.json["stacks"].as_array())
            .is_some_and(|stacks| !stacks.is_empty());
    match attempt.expected() {
        _ if *status >= 500 => Some(format!("answered {status}: {text}")),
        Expected::Refused(_) if !is_refused => Some(format!("accepted with {status}: {text}")),
        Expected::Refused(code) if !text.contains(code) => Some(format!("refused without {code}: {text}")),
        Expected::RefusedInReceipt if answer.reports("refused") != 1 || answer.reports("accepted") > 0 => {
            Some(format!("accepted with {status}: {text}"))
        }
        Expected::Harmless if attempt.situation == Situation::Replayed && answer.reports("accepted") > 0 => {
            Some(format!("stored twice: {text}"))
        }
        Expected::Harmless if got => Some(format!("got a target state: {text}")),
        _ => None,
    }
}

/// Waits until the replica has counted a response of this class.
async fn counted(
    replica: &Replica,
    before: &mut HashMap<String, u64>,
    attempt: &Attempt<'_>,
    status: u16,
) -> Result<()> {
    let (method, path) = attempt.route.name.split_once(' ').context("METHOD /path")?;
    let labels = format!("route=\"{path}\",method=\"{method}\",status=\"{}xx\"", status / 100);
    let past = before.get(&labels).copied().unwrap_or_default();
    let now = eventually(Duration::from_secs(5), "the attempt to be counted", async || {
        match replica.responses().await {
            Ok(now) if now.get(&labels).is_some_and(|count| *count > past) => Tried::Done(now),
            other => Tried::NotYet(format!("{labels}: {other:?}")),
        }
    });
    *before = now.await?;
    Ok(())
}

/// The entries of the audit log that there have to be: agent, method, route and reason, and how often.
#[derive(Default)]
struct ExpectedEntries(HashMap<(String, &'static str, String), (String, u64)>);

impl ExpectedEntries {
    fn add(&mut self, attempt: &Attempt<'_>, answer: &Answer) {
        let Some(reason) = attempt.situation.audited(attempt.route) else { return };
        // A claim to hold a stack of others is stored as unconfirmed, and audited all the same.
        let count = if attempt.route.name.ends_with("/holds") { 1 } else { answer.refusals };
        let key = (format!("agent:{}", attempt.sender().id), attempt.route.name, reason.to_string());
        self.0.entry(key).or_insert_with(|| (attempt.name(), 0)).1 += count;
    }

    /// Returns what is missing in the log. The replicas have ended, so that nothing is still on its way to it.
    async fn missing(&self, world: &World) -> Result<Vec<String>> {
        let mut connection = world.harness.database.connect().await?;
        let mut missing = Vec::new();
        for ((principal, route, reason), (name, count)) in &self.0 {
            let (method, path) = route.split_once(' ').context("METHOD /path")?;
            let found: i64 = sqlx::query_scalar(
                "SELECT coalesce(sum(count), 0)::bigint FROM audit
                 WHERE kind = 'refused' AND principal = $1 AND method = $2 AND route = $3 AND refusal = $4",
            )
            .bind(principal)
            .bind(method)
            .bind(path)
            .bind(reason)
            .fetch_one(&mut connection)
            .await?;
            if found.cast_unsigned() < *count {
                missing.push(format!("{name}: not audited: {found} of {count} as {reason}"));
            }
        }
        Ok(missing)
    }
}

/// Tells the broker again what the agents of the attacker hold.
async fn restore_holds(world: &World) -> Result<()> {
    for agent in [&world.attacker, &world.inactive] {
        let held = json!({ "stacks": agent.holds });
        let sent = agent.caller().send(Method::PUT, &agent.path("holds"), &held).await?;
        anyhow::ensure!(sent.status().is_success(), "{}", sent.text().await?);
    }
    Ok(())
}

/// Every attempt goes to one of the replicas in turn; in the full run, to both.
#[tokio::test(flavor = "multi_thread")]
async fn j1_j2_no_request_of_an_agent_reaches_what_was_not_released_to_it() -> Result<()> {
    let at_both = std::env::var("BROKKR_FAULTS").is_ok_and(|faults| faults == "all");
    let world = Box::pin(World::start()).await?;
    let mut others = OthersRows::read(&world).await?;
    let (mut memory, mut responses) = (Vec::new(), Vec::new());
    for replica in &world.replicas {
        memory.push(replica.resident()?);
        responses.push(replica.responses().await?);
    }
    let (mut attempts, mut most_memory) = (0, 0);
    let (mut violations, mut entries) = (Vec::new(), ExpectedEntries::default());
    let routes = routes();
    let pairs = routes.iter().flat_map(|route| Situation::iter().map(move |situation| (route, situation)));
    let pairs = pairs.filter(|(route, situation)| situation.applies_to(route));
    'attempts: for (route, situation) in pairs {
        for attempt in Attempt::all(&world, route, situation) {
            let both = if at_both { vec![0, 1] } else { vec![attempts % 2] };
            for at in both {
                let (replica, name, mut leaks) = (&world.replicas[at], attempt.name(), Vec::new());
                let answer = send(&attempt, replica, &mut leaks).await.with_context(|| name.clone())?;
                attempts += 1;
                let mut wrong: Vec<String> = judge(&attempt, &answer).into_iter().collect();
                wrong.extend(leaks.into_iter().map(|leak| format!("read {leak}")));
                let counted = counted(replica, &mut responses[at], &attempt, answer.status).await;
                wrong.extend(counted.err().map(|error| format!("not counted: {error:#}")));
                let now = OthersRows::read(&world).await?;
                wrong.extend(others.differences(&now));
                // The next attempt is not blamed for it.
                others = now;
                let grown = replica.resident()?.saturating_sub(memory[at]);
                most_memory = most_memory.max(grown);
                wrong.extend((grown > MEMORY).then(|| format!("{grown} bytes more memory")));
                entries.add(&attempt, &answer);
                violations.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
                // What follows would only be a consequence.
                if others.is_on_hold() || violations.len() >= ENOUGH {
                    break 'attempts;
                }
                if route.name.ends_with("/holds") {
                    restore_holds(&world).await?;
                }
            }
        }
    }
    let mut world = world;
    let (answered, failed) = std::mem::take(&mut world.load).stop().await;
    violations.extend(failed.map(|failed| format!("a request of others: failed: {failed}")));
    for replica in &world.replicas {
        replica.stop().await?;
    }
    violations.extend(entries.missing(&world).await?);
    let figures = json!({ "attempts": attempts, "violations": violations.len(), "requests_of_others": answered,
        "most_memory_bytes": most_memory });
    println!("{figures}");
    violations.iter().for_each(|violation| println!("violation: {violation}"));
    anyhow::ensure!(violations.is_empty(), "{} violations: {}", violations.len(), violations[0]);
    anyhow::ensure!(attempts > 200 && answered > 10, "{attempts} attempts, {answered} requests of others");
    Ok(())
}
