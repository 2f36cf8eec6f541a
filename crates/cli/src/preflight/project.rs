//! Checks of the caller's project: tokens, webhooks, the audit chain.

use brokkr_api::tokens::ApiToken;
use jiff::Timestamp;

use super::{Check, PreflightData, SOON, WebhookHealth, check, failed, listed, ok, warning};
use crate::view::text::{age, count};

pub fn tokens(data: &PreflightData, now: Timestamp) -> Check {
    check("tokens", &data.tokens, |tokens| {
        let left = |token: &ApiToken| {
            let at = token.expires_at.filter(|at| token.revoked_at.is_none() && *at > now)?;
            (at.duration_since(now) < SOON).then(|| format!("{} in {}", token.name, age(now, at)))
        };
        let soon: Vec<String> = tokens.iter().filter_map(left).collect();
        if soon.is_empty() {
            return ok("none expires within 14 days");
        }
        let text = listed(soon.iter().map(String::as_str), soon.len() as u64);
        warning(format!("expires: {text}"), "brokkr token list")
    })
}

pub fn webhooks(data: &PreflightData) -> Check {
    check("webhooks", &data.hooks, |hooks| {
        let has_trouble = |hook: &&WebhookHealth| hook.dead > 0 || hook.disabled_because.is_some();
        let troubled: Vec<&WebhookHealth> = hooks.iter().filter(has_trouble).collect();
        let Some(first) = troubled.first() else { return ok("no dead letters") };
        let text: Vec<String> = troubled.iter().map(|hook| trouble(hook)).collect();
        let text = listed(text.iter().map(String::as_str), text.len() as u64);
        let next = if first.dead > 0 {
            format!("brokkr webhook deliveries {} --state dead", first.name)
        } else {
            format!("brokkr webhook show {}", first.name)
        };
        warning(text, next)
    })
}

fn trouble(hook: &WebhookHealth) -> String {
    let at_least = if hook.more { "at least " } else { "" };
    let dead = format!("{} has {at_least}{}", hook.name, count(hook.dead, "dead letter"));
    match &hook.disabled_because {
        Some(why) if hook.dead == 0 => format!("{} is disabled: {why}", hook.name),
        Some(why) => format!("{dead} and is disabled: {why}"),
        None => dead,
    }
}

pub fn audit(data: &PreflightData) -> Check {
    check("audit", &data.audit, |progress| match &progress.broken {
        Some(link) => failed(
            format!("the chain is invalid at entry {}: {}", link.number, link.why),
            "brokkr audit verify",
        ),
        None if !progress.is_complete => warning(
            format!("the first {} entries are valid; there are more", progress.links),
            "brokkr audit verify",
        ),
        None => ok(format!("the chain is valid: {}", entries(progress.links))),
    })
}

fn entries(number: i64) -> String {
    if number == 1 { "1 entry".to_owned() } else { format!("{number} entries") }
}
