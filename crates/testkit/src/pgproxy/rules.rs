//! Which statements meet which fault, from when on and how often; and the test's grip on a rule.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::wire::Passed;
use crate::eventually::{Look, eventually};

/// One statement on its way to the server.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// In one line, lower case.
    pub statement: &'a str,
    /// The message that carries it, with its parameters.
    pub bytes: &'a [u8],
    /// What the same transaction has done before it.
    pub transaction: &'a [Passed],
}

type Test = Arc<dyn Fn(Moment<'_>) -> bool + Send + Sync>;

/// Which statements a rule is about. Every match unless limited by [`Matcher::nth`] and its kin.
#[derive(Clone)]
pub struct Matcher {
    test: Test,
    first: usize,
    last: usize,
}

impl Matcher {
    pub fn new(test: impl Fn(Moment<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { test: Arc::new(test), first: 1, last: usize::MAX }
    }

    pub fn any() -> Self {
        Self::new(|_| true)
    }

    /// Statements that contain this text.
    pub fn statement(part: &str) -> Self {
        let part = part.to_lowercase();
        Self::new(move |moment| moment.statement.contains(&part))
    }

    /// The COMMIT of a transaction in which a statement contained this text.
    pub fn commit_of(part: &str) -> Self {
        let part = part.to_lowercase();
        Self::new(move |moment| {
            moment.statement.starts_with("commit")
                && moment.transaction.iter().any(|passed| passed.statement.contains(&part))
        })
    }

    /// Only where a parameter of the statement, or of an earlier one in its transaction, contains this text.
    pub fn carrying(self, text: &str) -> Self {
        let (earlier, text) = (self.test, text.as_bytes().to_vec());
        let carries = move |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        let test = move |moment: Moment<'_>| {
            let carried = carries(moment.bytes) || moment.transaction.iter().any(|one| carries(&one.bytes));
            earlier(moment) && carried
        };
        Self { test: Arc::new(test), ..self }
    }

    /// Only the match with this number, counted from 1 after the rule was installed.
    pub fn nth(self, number: usize) -> Self {
        Self { first: number, last: number, ..self }
    }

    pub fn first(self, count: usize) -> Self {
        Self { first: 1, last: count, ..self }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "matches {}..={}", self.first, self.last)
    }
}

/// On which side of the server's work the fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The server has not seen the statement.
    Before,
    /// The server has carried it out; the client has not heard of it.
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends.
    Cut,
    /// It waits until the rule is released (then it goes on) or discarded (then the connection ends).
    Hold,
    /// This connection says nothing any more, in either direction, and does not end.
    Silence,
    /// It waits for a while.
    Delay(Duration),
}

/// What becomes of that which is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Closed,
    Open,
    Discard,
}

#[derive(Debug)]
pub(super) struct RuleState {
    matcher: Matcher,
    pub(super) when: When,
    pub(super) fault: Fault,
    met: AtomicUsize,
    reached: watch::Sender<usize>,
    gate: watch::Sender<Gate>,
    removed: CancellationToken,
}

impl RuleState {
    pub(super) fn new(matcher: Matcher, when: When, fault: Fault) -> Self {
        Self {
            matcher,
            when,
            fault,
            met: AtomicUsize::new(0),
            reached: watch::Sender::new(0),
            gate: watch::Sender::new(Gate::Closed),
            removed: CancellationToken::new(),
        }
    }

    /// Whether this statement meets the fault; counts it.
    pub(super) fn acts_on(&self, moment: Moment<'_>) -> bool {
        if self.removed.is_cancelled() || !(self.matcher.test)(moment) {
            return false;
        }
        let number = self.met.fetch_add(1, Ordering::SeqCst) + 1;
        (self.matcher.first..=self.matcher.last).contains(&number)
    }

    pub(super) fn reach(&self) {
        self.reached.send_modify(|reached| *reached += 1);
    }

    pub(super) async fn opened(&self) -> Gate {
        let mut gate = self.gate.subscribe();
        let opened = gate.wait_for(|gate| *gate != Gate::Closed).await;
        opened.map_or(Gate::Discard, |gate| *gate)
    }

    pub(super) fn remove(&self, gate: Gate) {
        self.removed.cancel();
        self.gate.send_if_modified(|now| {
            let closed = *now == Gate::Closed;
            if closed {
                *now = gate;
            }
            closed
        });
    }
}

/// A rule that was installed. Dropping this does not remove it.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) state: Arc<RuleState>,
}

impl Rule {
    /// How many statements have met the fault so far; where it lets them pass first, how many were answered.
    pub fn count(&self) -> usize {
        *self.state.reached.borrow()
    }

    /// Waits until so many statements have met the fault.
    pub async fn reached(&self, count: usize, deadline: Duration) -> Result<()> {
        eventually(deadline, &format!("{count} statements to meet the fault"), async || match self.count() {
            met if met >= count => Look::Yes(()),
            met => Look::NotYet(format!("{met} did")),
        })
        .await
    }

    /// What is held goes on, and nothing else meets the fault.
    pub fn release(&self) {
        self.state.remove(Gate::Open);
    }

    /// What is held is thrown away with its connection, and nothing else meets the fault.
    pub fn discard(&self) {
        self.state.remove(Gate::Discard);
    }
}
