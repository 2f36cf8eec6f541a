//! Which requests meet which fault, from when on and how often; and the test's grip on a rule.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::asked::Asked;
use super::canned::Canned;
use crate::eventually::{Look, eventually};

type Test = Arc<dyn Fn(&Asked) -> bool + Send + Sync>;
type ChangeQuery = Arc<dyn Fn(&str) -> String + Send + Sync>;
type ChangeBody = Arc<dyn Fn(&Asked, Bytes) -> Bytes + Send + Sync>;
type IsLost = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Which requests a rule is about. Every match unless limited by [`Matcher::nth`] and its kin.
#[derive(Clone)]
pub struct Matcher {
    test: Test,
    first: usize,
    last: usize,
}

impl Matcher {
    pub fn new(test: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        Self { test: Arc::new(test), first: 1, last: usize::MAX }
    }

    pub fn any() -> Self {
        Self::new(|_| true)
    }

    /// Requests that could change something.
    pub fn writes() -> Self {
        Self::new(Asked::is_write)
    }

    /// Server-side applies, without dry runs.
    pub fn applies() -> Self {
        Self::new(Asked::is_apply)
    }

    pub fn deletes() -> Self {
        Self::new(|asked| asked.method == http::Method::DELETE)
    }

    pub fn lists(resource: &str) -> Self {
        Self::new(Asked::is_list).about(resource)
    }

    pub fn watches(resource: &str) -> Self {
        Self::new(Asked::is_watch).about(resource)
    }

    /// Requests whose path contains this text.
    pub fn path(part: &str) -> Self {
        let part = part.to_owned();
        Self::new(move |asked| asked.path.contains(&part))
    }

    pub fn and(self, test: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        let earlier = self.test;
        Self { test: Arc::new(move |asked| earlier(asked) && test(asked)), ..self }
    }

    pub fn about(self, resource: &str) -> Self {
        let resource = resource.to_owned();
        self.and(move |asked| asked.is_about(&resource))
    }

    pub fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        self.and(move |asked| asked.is_named(&name))
    }

    /// Only the match with this number, counted from 1 after the rule was installed.
    pub fn nth(self, number: usize) -> Self {
        Self { first: number, last: number, ..self }
    }

    pub fn first(self, count: usize) -> Self {
        Self { first: 1, last: count, ..self }
    }

    /// This match and all after it.
    pub fn from(self, number: usize) -> Self {
        Self { first: number, last: usize::MAX, ..self }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "matches {}..={}", self.first, self.last)
    }
}

/// Earlier answers to LISTs.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(pub(super) Arc<HashMap<String, Bytes>>);

/// What happens to a request.
#[derive(Clone)]
pub enum Action {
    /// Held, and forwarded when the rule is released or removed, whether or not the client still waits.
    Hold,
    /// Forwarded at once; the answer is held.
    HoldAnswer,
    /// Held like [`Action::Hold`], and so is everything that comes after it: the place to kill somebody.
    HaltBefore,
    /// Forwarded, the answer held, and everything that comes after it is held.
    HaltAfter,
    /// Forwarded; then the connection is cut instead of answering.
    LoseAnswer,
    /// Cut without forwarding.
    Cut,
    /// Answered without forwarding.
    Answer(Canned),
    /// Forwarded with another query.
    Query(ChangeQuery),
    /// Forwarded; the answer's body is changed on the way back.
    Rewrite(ChangeBody),
    /// Forwarded; the answer ends in the middle, as if it were whole.
    Truncate,
    /// Forwarded; the connection is cut in the middle of the answer.
    CutShort,
    /// LISTs are answered as they were then; what was not listed then is forwarded.
    Older(Snapshot),
    /// A watch begins, and says nothing; when the rule is removed it is cut.
    Freeze,
    /// A watch leaves out events whose object passes the test.
    Swallow(IsLost),
    /// A watch begins with this line and ends.
    Line(Bytes),
}

impl Action {
    /// Leaves out what a watch tells of objects with this name.
    pub fn swallow(name: &str) -> Self {
        let name = name.to_owned();
        Self::Swallow(Arc::new(move |object| object["metadata"]["name"] == name.as_str()))
    }

    pub fn rewrite(change: impl Fn(&Asked, Bytes) -> Bytes + Send + Sync + 'static) -> Self {
        Self::Rewrite(Arc::new(change))
    }

    /// LISTs come in pages of this size, whatever was asked for.
    pub fn pages_of(size: usize) -> Self {
        Self::Query(Arc::new(move |query| {
            let rest = query.split('&').filter(|pair| !pair.starts_with("limit="));
            let pairs: Vec<String> =
                std::iter::once(format!("limit={size}")).chain(rest.map(ToOwned::to_owned)).collect();
            pairs.join("&")
        }))
    }

    fn halts(&self) -> bool {
        matches!(self, Self::HaltBefore | Self::HaltAfter)
    }
}

/// What becomes of that which is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Closed,
    Forward,
    Discard,
}

pub(super) struct RuleState {
    matcher: Matcher,
    pub(super) action: Action,
    /// How often the matcher's test was met, counted whether or not the rule acted.
    met: AtomicUsize,
    acted: watch::Sender<usize>,
    /// How often the fault has had its effect, as far as a test can rely on it: what is forwarded first is answered.
    reached: watch::Sender<usize>,
    gate: watch::Sender<Gate>,
    pub(super) removed: CancellationToken,
}

impl RuleState {
    pub(super) fn new(matcher: Matcher, action: Action) -> Self {
        Self {
            matcher,
            action,
            met: AtomicUsize::new(0),
            acted: watch::Sender::new(0),
            reached: watch::Sender::new(0),
            gate: watch::Sender::new(Gate::Closed),
            removed: CancellationToken::new(),
        }
    }

    /// Whether this request meets the fault; counts it.
    pub(super) fn acts_on(&self, asked: &Asked) -> bool {
        if self.removed.is_cancelled() {
            return false;
        }
        // Halted: whatever it is, it waits.
        if self.action.halts() && *self.acted.borrow() > 0 {
            return true;
        }
        if !(self.matcher.test)(asked) {
            return false;
        }
        let number = self.met.fetch_add(1, Ordering::SeqCst) + 1;
        (self.matcher.first..=self.matcher.last).contains(&number)
    }

    /// Counts one more; answers whether it was the first.
    pub(super) fn act(&self) -> bool {
        let mut first = false;
        self.acted.send_modify(|acted| {
            first = *acted == 0;
            *acted += 1;
        });
        first
    }

    /// Whether tests are told only after the server has answered.
    pub(super) fn forwards_first(&self) -> bool {
        matches!(self.action, Action::HaltAfter | Action::HoldAnswer | Action::LoseAnswer)
    }

    pub(super) fn reach(&self) {
        self.reached.send_modify(|reached| *reached += 1);
    }

    pub(super) async fn opened(&self) -> Gate {
        let mut gate = self.gate.subscribe();
        let opened = gate.wait_for(|gate| *gate != Gate::Closed).await;
        opened.map_or(Gate::Discard, |gate| *gate)
    }

    pub(super) fn open(&self, gate: Gate) {
        self.gate.send_if_modified(|now| {
            let closed = *now == Gate::Closed;
            if closed {
                *now = gate;
            }
            closed
        });
    }

    pub(super) fn remove(&self) {
        self.removed.cancel();
        self.open(Gate::Forward);
    }
}

/// A rule that was installed. Dropping this does not remove it.
#[derive(Clone)]
pub struct Rule {
    pub(super) state: Arc<RuleState>,
}

impl Rule {
    /// How many requests have met the fault so far; where it lets them pass first, how many have passed.
    pub fn count(&self) -> usize {
        *self.state.reached.borrow()
    }

    /// Waits until so many requests have met the fault.
    pub async fn reached(&self, count: usize, deadline: Duration) -> Result<()> {
        eventually(deadline, &format!("{count} requests to meet the fault"), async || match self.count() {
            met if met >= count => Look::Yes(()),
            met => Look::NotYet(format!("{met} did")),
        })
        .await
    }

    /// What is held goes on, and so does what comes later.
    pub fn release(&self) {
        self.remove();
    }

    /// What is held is thrown away, as if it had been lost on the way; what comes later goes on.
    pub fn discard(&self) {
        self.state.open(Gate::Discard);
        self.state.remove();
    }

    pub fn remove(&self) {
        self.state.remove();
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule for {:?}, acted {} times", self.state.matcher, self.count())
    }
}

impl fmt::Debug for RuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule for {:?}", self.matcher)
    }
}
