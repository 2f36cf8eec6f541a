//! J1, J2: every route of an agent, in every situation in which an attacker may have an agent's key, against two replicas
//! under load. `cargo xtask hostile` runs this test and prints its figures.

mod world;

use anyhow::{Context as _, Result};
use brokkr_api::agents::HeldStack;
use brokkr_api::protocol::{ENVELOPE_MEDIA_TYPE, header};
use brokkr_api::report::Transition;
use brokkr_api::{SequenceId, StackId};
use brokkr_broker::access::Permission;
use brokkr_broker::router::{self, Route};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use crate::harness::{Agent, Caller, Key, held};
use world::{Target, World};

/// What is wrong about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
enum Situation {
    NotTargeted,
    TargetedBefore,
    OtherProject,
    DeletedStack,
    UnknownStack,
    SupersededSession,
    Inactive,
    Revoked,
    Rejoined,
    OtherAgent,
    FutureSequence,
    PastSequence,
    FutureTime,
    PastTime,
    Oversized,
    Replayed,
    WrongMac,
}

/// What has to happen. In any case, nobody else may be affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Refused, with a 4xx status or in the receipt of reports.
    Refused,
    /// Answered within what the agent may do.
    Harmless,
}

struct Attempt {
    name: String,
    expected: Expected,
    request: RequestBuilder,
}

/// The routes that agents may use.
fn routes() -> Vec<Route> {
    let is_for_agents = |permission| {
        matches!(permission, Permission::Agent | Permission::AgentOr(_) | Permission::AnyAgentOr(_))
    };
    router::table().into_iter().filter(|route| is_for_agents(route.permission)).collect()
}

/// Returns who sends the request.
fn sender(world: &World, situation: Situation) -> &Agent {
    match situation {
        Situation::SupersededSession => &world.superseded,
        Situation::Inactive => &world.inactive,
        Situation::Revoked => &world.revoked,
        Situation::Rejoined => &world.rejoined,
        _ => &world.attacker,
    }
}

/// Returns the stack and version that the request names.
fn subject(world: &World, situation: Situation) -> (StackId, SequenceId) {
    let of = |target: &Target| (target.id, target.newest());
    match situation {
        Situation::NotTargeted => of(&world.other),
        Situation::TargetedBefore => of(&world.before),
        Situation::OtherProject => of(&world.foreign),
        Situation::DeletedStack => of(&world.deleted),
        Situation::UnknownStack => (StackId::generate(), world.other.newest()),
        Situation::FutureSequence => (world.own.id, SequenceId(i64::MAX)),
        Situation::PastSequence => (world.own.id, world.own.versions[0]),
        _ => of(&world.own),
    }
}

/// Returns the body of a write, valid except for the situation.
fn body(world: &World, route: &str, situation: Situation) -> Result<Value> {
    let agent = sender(world, situation);
    let (stack, sequence) = subject(world, situation);
    let second = match situation {
        Situation::FutureTime => 4_000_000_000,
        Situation::PastTime => 1_000,
        _ => 1_770_000_000,
    };
    Ok(match route.rsplit('/').next().context("a path")? {
        "session" => json!({ "count": 1, "instance": agent.session.instance }),
        "holds" => {
            let claim = HeldStack { sequence_id: sequence, ..held(stack, "claimed", 1) };
            json!({ "stacks": [stack], "held": [claim] })
        }
        "reports" => json!({ "reports": [agent.report(stack, sequence, Transition::Failed, second)] }),
        "keys" => json!(agent.signer().key_change(&Key::generate()?)?),
        other => anyhow::bail!("write a body for {other}"),
    })
}

fn expected(route: &str, situation: Situation) -> Expected {
    use Situation as S;
    let (method, path) = route.split_once(' ').unwrap_or_default();
    let names_a_stack = path.ends_with("/reports") || path.contains("/deployment-objects/");
    let refused = match situation {
        S::Revoked | S::Rejoined | S::OtherAgent | S::Oversized => true,
        S::NotTargeted | S::OtherProject | S::DeletedStack | S::UnknownStack | S::FutureSequence => {
            names_a_stack
        }
        // It may still report what became of the stack, but reads nothing newer than what it had. An inactive agent keeps
        // what it has, and reports it, but gets nothing.
        S::TargetedBefore | S::Inactive => path.contains("/deployment-objects/"),
        // An older session may read, but not poll.
        S::SupersededSession => path.ends_with("/target-state"),
        S::WrongMac => path.ends_with("/target-state"),
        S::PastSequence | S::FutureTime | S::PastTime | S::Replayed => false,
    };
    // An agent that names the other one of two agents in the path is refused; content has no agent in its path.
    let has_no_agent = situation == S::OtherAgent && path.contains("/deployment-objects/");
    let is_read = method == "GET" && situation == S::Oversized;
    if refused && !has_no_agent && !is_read { Expected::Refused } else { Expected::Harmless }
}

/// Returns the request of one pair.
fn attempt(world: &World, number: usize, route: &Route, situation: Situation) -> Result<Attempt> {
    let agent = sender(world, situation);
    let named = if situation == Situation::OtherAgent { &world.superseded } else { agent };
    let (method, path) = route.name.split_once(' ').context("METHOD /path")?;
    let (_, sequence) = subject(world, situation);
    let path = path.replace("{agent}", &named.id.to_string()).replace("{sequence_id}", &sequence.to_string());
    anyhow::ensure!(!path.contains('{'), "fill in the parameters of {path}");
    let address = if number.is_multiple_of(2) { world.harness.server.address } else { world.replica.address };
    let caller: Caller = agent.at(address);
    let mut request =
        caller.request(method.parse()?, &path).header(header::SESSION, agent.session.to_string());
    if path.ends_with("/target-state") {
        let digest = brokkr_api::protocol::holds_digest(agent.holds.iter().copied());
        request = request.header("accept", ENVELOPE_MEDIA_TYPE).header(header::PROTOCOL, "1");
        request = request.header(header::HOLDS, digest.to_string());
    }
    if situation == Situation::WrongMac {
        let forged = "1799999999.999999999999.00112233445566778899aabbccddeeff";
        request = request.header(header::POSITION, forged);
    }
    if method != "GET" {
        request = match situation {
            Situation::Oversized => {
                let body = body(world, route.name, situation)?.to_string();
                request.body(format!("{body}{}", " ".repeat(route.body.0)))
            }
            _ => request.json(&body(world, route.name, situation)?),
        };
        request = caller.signed(request)?;
    }
    let name = format!("{} × {situation}", route.name);
    Ok(Attempt { name, expected: expected(route.name, situation), request })
}

/// Returns the code of a refusal that another check could otherwise give first.
fn code_of(name: &str) -> Option<&'static str> {
    let codes =
        [("wrong_mac", "BRK1012"), ("oversized", "BRK2006"), ("revoked", "BRK1001"), ("rejoined", "BRK1001")];
    codes.into_iter().find_map(|(situation, code)| name.ends_with(situation).then_some(code))
}

/// Returns why the response is wrong, if it is.
fn judge(name: &str, expected: Expected, status: u16, text: &str) -> Option<String> {
    let receipt: Value = serde_json::from_str(text).unwrap_or_default();
    let accepted = receipt["accepted"].as_array().is_some_and(|ids| !ids.is_empty());
    let in_receipt = receipt["refused"].as_array().is_some_and(|ids| !ids.is_empty()) && !accepted;
    let refused = (400..500).contains(&status) || in_receipt;
    if let (true, Some(code)) = (expected == Expected::Refused, code_of(name))
        && !text.contains(code)
    {
        return Some(format!("refused with another code than {code}: {text}"));
    }
    match expected {
        _ if status >= 500 => Some(format!("answered {status}: {text}")),
        Expected::Refused if !refused => Some(format!("accepted with {status}: {text}")),
        _ => None,
    }
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn j1_j2_no_request_of_an_agent_reaches_what_was_not_released_to_it() -> Result<()> {
    const MEMORY: u64 = 64 << 20;
    let mut world = World::start().await?;
    let before = world.bystanders().await?;
    anyhow::ensure!(before.len() > 10, "the world is too small: {before:?}");
    let memory = resident()?;
    let (mut attempts, mut violations) = (0, Vec::new());
    for route in routes() {
        for situation in Situation::iter() {
            let attempt = attempt(&world, attempts, &route, situation)?;
            let again = attempt.request.try_clone().filter(|_| situation == Situation::Replayed);
            for request in std::iter::once(attempt.request).chain(again) {
                let response = request.send().await.with_context(|| attempt.name.clone())?;
                let (status, text) = (response.status().as_u16(), response.text().await?);
                violations.extend(
                    judge(&attempt.name, attempt.expected, status, &text)
                        .map(|why| format!("{}: {why}", attempt.name)),
                );
                let leaked = world.leaks(&text);
                violations.extend((!leaked.is_empty()).then(|| format!("{}: read {leaked:?}", attempt.name)));
                attempts += 1;
            }
            if route.name.ends_with("/holds") {
                world.attacker.hold(&[world.own.id]).await?;
            }
            let now = world.bystanders().await?;
            if now != before {
                let changed: Vec<_> = now.iter().filter(|row| !before.contains(row)).collect();
                violations.push(format!("{}: changed what belongs to others: {changed:?}", attempt.name));
            }
            let grown = resident()?.saturating_sub(memory);
            violations.extend((grown > MEMORY).then(|| format!("{}: {grown} bytes more", attempt.name)));
        }
    }
    // Every kind of refusal is visible to an admin.
    for reason in ["not_targeted", "not_released"] {
        let path = format!("audit?kind=refused&who=agent:{}", world.attacker.id);
        let found = brokkr_testkit::eventually(std::time::Duration::from_secs(30), reason, async || {
            let page: Value = world.harness.admin.get_json(&path).await?;
            anyhow::ensure!(page.to_string().contains(reason), "{page}");
            anyhow::Ok(())
        });
        violations.extend(found.await.err().map(|error| format!("not in the audit log: {error:#}")));
    }
    let others = world.stop().await?;
    println!(
        "{}",
        json!({ "attempts": attempts, "violations": violations.len(), "requests_of_others": others })
    );
    anyhow::ensure!(violations.is_empty(), "{}", violations.join("\n"));
    anyhow::ensure!(attempts > 100 && others > 10, "{attempts} attempts, {others} requests of others");
    Ok(())
}
