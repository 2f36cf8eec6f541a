//! What must be true before an upgrade and after a restore: pure, from what was answered to checks.
//!
//! `commands/admin/preflight.rs` asks. What could not be asked is an answer, too, and never a good one.

use brokkr_api::audit::BrokenLink;
use brokkr_api::health::Health;
use brokkr_api::stacks::Stack;
use brokkr_api::status::ErrorGroup;
use brokkr_api::system::System;
use brokkr_api::tokens::{ApiToken, WhoAmI};
use brokkr_client::ClientError;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::failure::Failure;

mod broker;
mod fleet;
mod project;

/// A token that expires within this is told.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Things that a reason names; of the others it says how many they are.
const NAMED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    /// Nothing that has to stop anybody, but somebody should have looked; or nobody was allowed to.
    Look,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: &'static str,
    pub verdict: Verdict,
    pub reason: String,
    /// What to type or do; none where all is well.
    pub next: Option<String>,
}

/// Everything that was asked, and what came back.
#[derive(Debug)]
pub struct Answers {
    /// Where the broker is.
    pub server: String,
    /// Of this program.
    pub version: String,
    pub reached: Asked<()>,
    pub caller: Asked<WhoAmI>,
    pub replicas: Vec<Replica>,
    pub system: Asked<System>,
    pub fleet: Asked<Fleet>,
    /// Deleted stacks that agents still hold.
    pub owed: Asked<Vec<Stack>>,
    pub errors: Asked<Vec<ErrorGroup>>,
    pub tokens: Asked<Vec<ApiToken>>,
    pub hooks: Asked<Vec<Hook>>,
    pub audit: Asked<Walk>,
}

pub type Asked<T> = Result<T, Unanswered>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Not to this caller.
    NotAllowed {
        why: String,
    },
    Failed {
        why: String,
        next: Option<String>,
    },
    /// The broker could not be reached, or refused the token.
    NotAsked,
}

impl From<ClientError> for Unanswered {
    fn from(error: ClientError) -> Self {
        if let ClientError::Problem { problem, .. } = &error
            && problem.status == 403
        {
            return Self::NotAllowed { why: problem.detail.clone() };
        }
        let failure = Failure::of_client("ask", error);
        let why = failure.lines.into_iter().next().unwrap_or(failure.what);
        Self::Failed { why, next: failure.next }
    }
}

impl Unanswered {
    pub fn why(&self) -> String {
        match self {
            Self::NotAllowed { why } => format!("you may not ask: {why}"),
            Self::Failed { why, .. } => why.clone(),
            Self::NotAsked => "not asked: the broker cannot be reached, or refuses the token".to_owned(),
        }
    }
}

/// One address behind the broker's name.
#[derive(Clone, Debug)]
pub struct Replica {
    pub address: String,
    pub health: Asked<Health>,
}

/// Agents that do not come as they should. Lists may be cut, numbers are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub agents: u64,
    pub silent: Group,
    pub never: Group,
    /// Somebody comes in their name, and is refused.
    pub refused: Vec<String>,
    /// How many of the silent and late were not asked why.
    pub not_asked: usize,
    pub revoked: Vec<String>,
}

/// How many, and the names of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub number: u64,
    pub names: Vec<String>,
}

/// A webhook, and how many of its messages were given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    pub name: String,
    /// Why it was switched off, if nobody did.
    pub off_because: Option<String>,
    pub dead: usize,
    /// There are more than were counted.
    pub more: bool,
}

/// How far the audit chain was walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    pub links: i64,
    pub broken: Option<BrokenLink>,
    /// To its end.
    pub whole: bool,
}

/// All of them, in the order in which they are best put right.
pub fn checks(answers: &Answers, now: Timestamp) -> Vec<Check> {
    vec![
        broker::reached(answers),
        broker::caller(answers, now),
        broker::version(answers),
        broker::replicas(answers),
        broker::hold(answers),
        broker::restore(answers),
        fleet::versions(answers),
        fleet::silent(answers),
        fleet::refused(answers),
        fleet::revoked(answers),
        fleet::deletions(answers, now),
        fleet::prunes(answers),
        project::tokens(answers, now),
        project::webhooks(answers),
        project::audit(answers),
    ]
}

/// What was found: how bad, why, what next.
struct Finding(Verdict, String, Option<String>);

fn ok(reason: impl Into<String>) -> Finding {
    Finding(Verdict::Ok, reason.into(), None)
}

fn look(reason: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding(Verdict::Look, reason.into(), Some(next.into()))
}

fn bad(reason: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding(Verdict::Bad, reason.into(), Some(next.into()))
}

/// Judges an answer; where there is none, that is the finding.
fn judged<T>(check: &'static str, asked: &Asked<T>, judge: impl FnOnce(&T) -> Finding) -> Check {
    let Finding(verdict, reason, next) = match asked {
        Ok(answer) => judge(answer),
        Err(unanswered) => not_told(unanswered),
    };
    Check { check, verdict, reason, next }
}

fn not_told(unanswered: &Unanswered) -> Finding {
    let why = unanswered.why();
    match unanswered {
        Unanswered::NotAllowed { .. } => look(why, "ask with a token that may: brokkr login"),
        Unanswered::Failed { next, .. } => Finding(Verdict::Bad, why, next.clone()),
        Unanswered::NotAsked => Finding(Verdict::Look, why, None),
    }
}

/// `a, b, c and 4 more`
fn listed<'a>(names: impl IntoIterator<Item = &'a str>, number: u64) -> String {
    let named: Vec<&str> = names.into_iter().take(NAMED).collect();
    let more = number.saturating_sub(named.len() as u64);
    if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) }
}

#[cfg(test)]
mod tests;
