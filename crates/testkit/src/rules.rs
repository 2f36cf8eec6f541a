//! The rule engine of the fault proxies: it decides which requests meet which fault, and gives a test the
//! handle with which it observes and ends the fault.
//!
//! The engine does not know the protocol: [`Matcher`] is generic over the request (`R`), [`Rules`] over `R`
//! and the fault (`A`).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::eventually::{Attempt, eventually};

type Test<R> = Arc<dyn Fn(&R) -> bool + Send + Sync>;

/// Selects requests. The fault applies to every match, unless limited by [`Matcher::nth`],
/// [`Matcher::first`] or [`Matcher::from`].
pub struct Matcher<R> {
    test: Test<R>,
    first: usize,
    last: usize,
}

impl<R: 'static> Matcher<R> {
    pub fn new(test: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        Self { test: Arc::new(test), first: 1, last: usize::MAX }
    }

    pub fn any() -> Self {
        Self::new(|_| true)
    }

    pub fn and(self, test: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        let earlier = self.test;
        Self { test: Arc::new(move |request| earlier(request) && test(request)), ..self }
    }

    /// Selects only the match with this number, counted from 1 after the rule was installed.
    pub fn nth(self, number: usize) -> Self {
        Self { first: number, last: number, ..self }
    }

    /// Selects only the first `count` matches.
    pub fn first(self, count: usize) -> Self {
        Self { first: 1, last: count, ..self }
    }

    /// Selects the match with this number and all later ones.
    pub fn from(self, number: usize) -> Self {
        Self { first: number, last: usize::MAX, ..self }
    }
}

impl<R> Clone for Matcher<R> {
    fn clone(&self) -> Self {
        Self { test: Arc::clone(&self.test), first: self.first, last: self.last }
    }
}

impl<R> fmt::Debug for Matcher<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "matches {}..={}", self.first, self.last)
    }
}

/// A fault that a rule can apply.
pub(crate) trait Fault {
    /// Returns whether the first match makes the rule match every later request.
    fn halts(&self) -> bool {
        false
    }
}

/// Decides what happens to requests that a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Closed,
    Forward,
    Discard,
}

/// The part of a rule that the proxy and the test's handle share.
#[derive(Debug)]
struct Progress {
    hits: watch::Sender<usize>,
    gate: watch::Sender<Gate>,
    removed: CancellationToken,
}

impl Progress {
    fn remove(&self, gate: Gate) {
        self.gate.send_if_modified(|now| {
            let closed = *now == Gate::Closed;
            if closed {
                *now = gate;
            }
            closed
        });
        self.removed.cancel();
    }
}

/// A rule as the proxy sees it.
pub(crate) struct InstalledRule<R, A> {
    matcher: Matcher<R>,
    pub(crate) fault: A,
    /// How many requests the matcher's test accepted, whether or not the fault was applied to them.
    matched: AtomicUsize,
    applied: AtomicUsize,
    progress: Arc<Progress>,
}

impl<R, A: Fault> InstalledRule<R, A> {
    /// Counts the request, and returns whether the fault applies to it.
    fn applies_to(&self, request: &R) -> bool {
        if self.is_removed() {
            return false;
        }
        if self.fault.halts() && self.applied.load(Ordering::SeqCst) > 0 {
            return true;
        }
        if !(self.matcher.test)(request) {
            return false;
        }
        let number = self.matched.fetch_add(1, Ordering::SeqCst) + 1;
        (self.matcher.first..=self.matcher.last).contains(&number)
    }

    /// Counts a request that met the fault. Called when a test can rely on the effect.
    pub(crate) fn hit(&self) {
        self.progress.hits.send_modify(|hits| *hits += 1);
    }

    /// Waits until the test decides what happens to held requests.
    pub(crate) async fn opened(&self) -> Gate {
        let mut gate = self.progress.gate.subscribe();
        let opened = gate.wait_for(|gate| *gate != Gate::Closed).await;
        opened.map_or(Gate::Discard, |gate| *gate)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.progress.removed.is_cancelled()
    }

    pub(crate) async fn removed(&self) {
        self.progress.removed.cancelled().await;
    }
}

impl<R, A> fmt::Debug for InstalledRule<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule for {:?}", self.matcher)
    }
}

/// A rule that applies to a request.
pub(crate) struct Applied<R, A> {
    pub(crate) rule: Arc<InstalledRule<R, A>>,
    /// Whether this is the first request that the rule applies to.
    pub(crate) is_first: bool,
}

/// The rules of one proxy, in the order in which they were installed.
pub(crate) struct Rules<R, A> {
    installed: Mutex<Vec<Arc<InstalledRule<R, A>>>>,
}

impl<R, A> fmt::Debug for Rules<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.installed().iter()).finish()
    }
}

impl<R, A> Default for Rules<R, A> {
    fn default() -> Self {
        Self { installed: Mutex::default() }
    }
}

impl<R, A> Rules<R, A> {
    fn installed(&self) -> MutexGuard<'_, Vec<Arc<InstalledRule<R, A>>>> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R, A: Fault> Rules<R, A> {
    pub(crate) fn install(&self, matcher: Matcher<R>, fault: A) -> Rule {
        let progress = Arc::new(Progress {
            hits: watch::Sender::new(0),
            gate: watch::Sender::new(Gate::Closed),
            removed: CancellationToken::new(),
        });
        let rule = InstalledRule {
            matcher,
            fault,
            matched: AtomicUsize::new(0),
            applied: AtomicUsize::new(0),
            progress: Arc::clone(&progress),
        };
        let mut installed = self.installed();
        installed.retain(|rule| !rule.is_removed());
        installed.push(Arc::new(rule));
        Rule { progress }
    }

    /// Removes every rule and forwards what they hold.
    pub(crate) fn remove_all(&self) {
        for rule in self.installed().drain(..) {
            rule.progress.remove(Gate::Forward);
        }
    }

    /// Returns the first rule that applies to this request. One lock for the whole decision, so that concurrent requests
    /// are counted one after the other.
    pub(crate) fn find(&self, request: &R) -> Option<Applied<R, A>> {
        let installed = self.installed();
        let rule = installed.iter().find(|rule| rule.applies_to(request))?;
        let is_first = rule.applied.fetch_add(1, Ordering::SeqCst) == 0;
        Some(Applied { rule: Arc::clone(rule), is_first })
    }
}

/// The handle of an installed rule. Dropping it does not remove the rule.
#[derive(Clone, Debug)]
pub struct Rule {
    progress: Arc<Progress>,
}

impl Rule {
    /// Returns how many requests the fault was applied to; if the fault forwards first, how many were forwarded.
    pub fn hits(&self) -> usize {
        *self.progress.hits.borrow()
    }

    /// Waits until the fault was applied to `count` requests.
    pub async fn wait_for_hits(&self, count: usize, deadline: Duration) -> Result<()> {
        eventually(deadline, &format!("{count} requests to meet the fault"), async || match self.hits() {
            hits if hits >= count => Attempt::Done(()),
            hits => Attempt::NotYet(format!("{hits} met it")),
        })
        .await
    }

    /// Removes the rule and forwards what it holds.
    pub fn release(&self) {
        self.progress.remove(Gate::Forward);
    }

    /// Removes the rule and drops what it holds, as if it had been lost on the network.
    pub fn discard(&self) {
        self.progress.remove(Gate::Discard);
    }
}
