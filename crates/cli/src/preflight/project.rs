//! Checks of the project that the caller acts in: tokens, webhooks, the audit chain.

use brokkr_api::tokens::ApiToken;
use jiff::Timestamp;

use super::{Answers, Check, Hook, SOON, bad, judged, listed, look, ok};
use crate::view::text::{age, count};

pub fn tokens(answers: &Answers, now: Timestamp) -> Check {
    judged("tokens", &answers.tokens, |tokens| {
        let left = |token: &ApiToken| {
            let at = token.expires_at.filter(|at| token.revoked_at.is_none() && *at > now)?;
            (at.duration_since(now) < SOON).then(|| format!("{} in {}", token.name, age(now, at)))
        };
        let soon: Vec<String> = tokens.iter().filter_map(left).collect();
        if soon.is_empty() {
            return ok("none expires within 14 days");
        }
        let told = listed(soon.iter().map(String::as_str), soon.len() as u64);
        look(format!("expires: {told}"), "brokkr token list")
    })
}

pub fn webhooks(answers: &Answers) -> Check {
    judged("webhooks", &answers.hooks, |hooks| {
        let dead = |hook: &&Hook| hook.dead > 0 || hook.off_because.is_some();
        let troubled: Vec<&Hook> = hooks.iter().filter(dead).collect();
        let Some(first) = troubled.first() else { return ok("no dead letters") };
        let told: Vec<String> = troubled.iter().map(|hook| trouble(hook)).collect();
        let told = listed(told.iter().map(String::as_str), told.len() as u64);
        let next = if first.dead > 0 {
            format!("brokkr webhook deliveries {} --state dead", first.name)
        } else {
            format!("brokkr webhook show {}", first.name)
        };
        look(told, next)
    })
}

fn trouble(hook: &Hook) -> String {
    let at_least = if hook.more { "at least " } else { "" };
    let dead = format!("{} has {at_least}{}", hook.name, count(hook.dead, "dead letter"));
    match &hook.off_because {
        Some(why) if hook.dead == 0 => format!("{} is off, because {why}", hook.name),
        Some(why) => format!("{dead} and is off, because {why}"),
        None => dead,
    }
}

pub fn audit(answers: &Answers) -> Check {
    judged("audit", &answers.audit, |walk| match &walk.broken {
        Some(link) => bad(
            format!("the chain does not hold at link {}: {}", link.number, link.why),
            "brokkr audit verify",
        ),
        None if !walk.whole => {
            look(format!("the first {} links hold; there are more", walk.links), "brokkr audit verify")
        }
        None => ok(format!("the chain holds: {}", count(usize::try_from(walk.links).unwrap_or(0), "link"))),
    })
}
