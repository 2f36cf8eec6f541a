//! Checks before an upgrade and after a restore: evaluates data without I/O.
//!
//! `commands/admin/preflight.rs` fetches the data. Data that could not be fetched never counts as ok.

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

/// Tokens that expire within this time are reported.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
/// A reason lists at most this many names; it only counts the others.
const NAMED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    /// Not blocking, but worth a look; or the caller lacks the permission to check.
    Warning,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: &'static str,
    pub verdict: Verdict,
    pub reason: String,
    /// The next action; none if the check is ok.
    pub next: Option<String>,
}

/// The data that the checks evaluate.
#[derive(Debug)]
pub struct PreflightData {
    /// URL of the broker.
    pub server: String,
    /// Version of this program.
    pub version: String,
    pub reached: Fetched<()>,
    pub caller: Fetched<WhoAmI>,
    pub replicas: Vec<Replica>,
    pub system: Fetched<System>,
    pub fleet: Fetched<Fleet>,
    /// Deleted stacks that agents still have.
    pub pending_deletions: Fetched<Vec<Stack>>,
    pub errors: Fetched<Vec<ErrorGroup>>,
    pub tokens: Fetched<Vec<ApiToken>>,
    pub hooks: Fetched<Vec<WebhookHealth>>,
    pub audit: Fetched<AuditProgress>,
}

pub type Fetched<T> = Result<T, FetchError>;

/// Why data could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The caller is not allowed to read it.
    NotAllowed {
        why: String,
    },
    Failed {
        why: String,
        next: Option<String>,
    },
    /// The broker is not reachable, or refused the token.
    Skipped,
}

impl From<ClientError> for FetchError {
    fn from(error: ClientError) -> Self {
        if let ClientError::Problem { problem, .. } = &error
            && problem.status == 403
        {
            return Self::NotAllowed { why: problem.detail.clone() };
        }
        let failure = Failure::of_client("read", error);
        let why = failure.lines.into_iter().next().unwrap_or(failure.what);
        Self::Failed { why, next: failure.next }
    }
}

impl FetchError {
    pub fn why(&self) -> String {
        match self {
            Self::NotAllowed { why } => format!("not allowed: {why}"),
            Self::Failed { why, .. } => why.clone(),
            Self::Skipped => "skipped: the broker is not reachable, or refuses the token".to_owned(),
        }
    }
}

/// One address behind the broker's name.
#[derive(Clone, Debug)]
pub struct Replica {
    pub address: String,
    pub health: Fetched<Health>,
}

/// Agents that are not connected. The lists and `not_examined` cover only the first page of agents; the other
/// numbers are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub agents: u64,
    pub silent: Group,
    pub never: Group,
    /// Agents whose requests are refused.
    pub refused: Vec<String>,
    /// How many of the silent, late and never connected agents were not examined.
    pub not_examined: usize,
    pub revoked: Vec<String>,
}

/// The number of agents, and the names of the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub number: u64,
    pub names: Vec<String>,
}

/// A webhook and its number of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookHealth {
    pub name: String,
    /// Why the broker disabled it.
    pub disabled_because: Option<String>,
    pub dead: usize,
    /// Whether there are more dead letters than were counted.
    pub more: bool,
}

/// The verified part of the audit chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditProgress {
    pub links: i64,
    pub broken: Option<BrokenLink>,
    /// Whether the chain was verified to its end.
    pub is_complete: bool,
}

/// Returns all checks, in the order in which to fix them.
pub fn checks(data: &PreflightData, now: Timestamp) -> Vec<Check> {
    vec![
        broker::reached(data),
        broker::caller(data, now),
        broker::version(data),
        broker::replicas(data),
        broker::hold(data),
        broker::restore(data),
        broker::database_role(data),
        fleet::versions(data),
        fleet::silent(data),
        fleet::refused(data),
        fleet::revoked(data),
        fleet::deletions(data, now),
        fleet::prunes(data),
        project::tokens(data, now),
        project::webhooks(data),
        project::audit(data),
    ]
}

/// The result of a check: verdict, reason and next action.
struct Finding(Verdict, String, Option<String>);

fn ok(reason: impl Into<String>) -> Finding {
    Finding(Verdict::Ok, reason.into(), None)
}

fn warning(reason: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding(Verdict::Warning, reason.into(), Some(next.into()))
}

fn failed(reason: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding(Verdict::Failed, reason.into(), Some(next.into()))
}

/// Evaluates data; data that could not be fetched is also a finding.
fn check<T>(check: &'static str, fetched: &Fetched<T>, judge: impl FnOnce(&T) -> Finding) -> Check {
    let Finding(verdict, reason, next) = match fetched {
        Ok(data) => judge(data),
        Err(error) => not_fetched(error),
    };
    Check { check, verdict, reason, next }
}

fn not_fetched(error: &FetchError) -> Finding {
    let why = error.why();
    match error {
        FetchError::NotAllowed { .. } => warning(why, "use a token with more permissions: brokkr login"),
        FetchError::Failed { next, .. } => Finding(Verdict::Failed, why, next.clone()),
        FetchError::Skipped => Finding(Verdict::Warning, why, None),
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
