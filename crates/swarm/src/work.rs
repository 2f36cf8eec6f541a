//! How an agent processes a response: report that it holds the stack, fetch, check, apply, report.

use std::sync::atomic::Ordering;
use std::time::Instant;

use brokkr_api::envelope::{Envelope, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Hops, Report, ReportBatch, ReportReceipt, Transition};
use brokkr_api::{EventId, SequenceId};
use jiff::Timestamp;

use crate::agent::{Agent, read};
use crate::config::{CAUSES, Reaction};
use crate::counts::Counters;
use crate::request::Write;
use crate::wire::RequestError;

/// Returns a failure as clusters report it. Its message names an object, so the broker has to group messages
/// that differ only in that name.
fn failure(number: u64, causes: u64, object: impl std::fmt::Display) -> (Reason, Message) {
    let reason = match number % causes.clamp(1, CAUSES) {
        0 => Reason::Immutable { fields: vec!["spec.selector".into()] },
        1 => Reason::Forbidden {
            account: None,
            verbs: vec!["create".into()],
            resource: Some("configmaps".into()),
            namespace: Some("shop".into()),
        },
        2 => Reason::WebhookDenied { webhook: Some("no-latest-tag".into()) },
        _ => Reason::QuotaExceeded { quota: Some("compute".into()) },
    };
    let message = Message::new(format!("Pod shop/web-{object}: {}", reason.sentence()));
    (reason, message)
}

impl Agent {
    pub(crate) async fn work(&mut self, envelope: &Envelope) -> Result<(), RequestError> {
        if self.shared.config.duty == Reaction::Watch {
            return Ok(());
        }
        for target in &envelope.stacks {
            if target.removal.is_some() {
                let removed = self.remove(target);
                self.store_reports(removed);
            } else if !target.withdrawn
                && self.has(target).is_none_or(|sequence| sequence < target.sequence_id)
            {
                let delivered = self.deliver(target).await?;
                self.store_reports(delivered);
            }
        }
        Ok(())
    }

    /// Stores reports until the broker has them, as an agent stores them in its cluster.
    fn store_reports(&mut self, reports: impl IntoIterator<Item = Report>) {
        let mut reports = reports.into_iter().peekable();
        if reports.peek().is_none() {
            return;
        }
        let at = Instant::now() + self.random.within(&self.shared.config.applying);
        let (_, owed) = self.due.get_or_insert_with(|| (at, Vec::new()));
        owed.extend(reports);
    }

    fn has(&self, target: &TargetStack) -> Option<SequenceId> {
        self.held.iter().find(|held| held.stack == target.stack_id).map(|held| held.sequence)
    }

    /// Removes the stack. The next poll tells the broker that the agent no longer holds it.
    fn remove(&mut self, target: &TargetStack) -> Option<Report> {
        self.has(target)?;
        self.held.retain(|held| held.stack != target.stack_id);
        Counters::one(&self.shared.counters.removed);
        let now = Timestamp::now();
        let hops = Hops { pruned: Some(now), ..hops(target) };
        Some(self.make_report(target, Transition::Removed, now, hops))
    }

    async fn deliver(&mut self, target: &TargetStack) -> Result<Vec<Report>, RequestError> {
        // Before the first write, the broker must know that the agent holds the stack.
        if self.has(target).is_none() {
            self.announce(target.stack_id).await?;
        }
        self.begin(target);
        let content = self.content(target.sequence_id).await?.body;
        if Checksum::of(&content) != target.checksum {
            return Err(RequestError::Wrong("the content is not what was announced"));
        }
        let counters = &self.shared.counters;
        Counters::one(&counters.contents);
        Counters::add(&counters.content_bytes, content.len() as u64);
        self.shared.fetched.note(self.number);
        if let Some(held) = self.held.iter_mut().find(|held| held.stack == target.stack_id) {
            held.sequence = target.sequence_id;
        }
        Ok(self.apply(target))
    }

    /// Records that the agent begins the version, and decides whether it fails: once, however often the delivery is repeated.
    fn begin(&mut self, target: &TargetStack) {
        let shared = &self.shared;
        let Some(held) = self.held.iter_mut().find(|held| held.stack == target.stack_id) else { return };
        if held.begun >= target.sequence_id {
            return;
        }
        let is_update = held.begun > SequenceId(0);
        held.begun = target.sequence_id;
        shared.begun.note(self.number);
        if is_update {
            let begun_before = shared.counters.updates.fetch_add(1, Ordering::Relaxed);
            held.fails = shared.config.bad_updates.fails(self.number, begun_before);
        }
    }

    fn apply(&mut self, target: &TargetStack) -> Vec<Report> {
        let now = Timestamp::now();
        let verified = Hops { fetched: Some(now), verified: Some(now), ..hops(target) };
        Counters::one(&self.shared.counters.delivered);
        let is_bad = self.held.iter().any(|held| held.stack == target.stack_id && held.fails);
        let fails = is_bad || self.random.chance(self.shared.config.failures.apply);
        if fails && !self.shared.is_healed() {
            Counters::one(&self.shared.counters.failed);
            let (reason, message) = failure(self.random.next(), self.shared.config.causes, self.number);
            let failed = self.make_report(target, Transition::Failed, now, verified);
            return vec![Report { reason, message, ..failed }];
        }
        let applied = Hops { applied: Some(now), pruned: Some(now), ..verified };
        let healthy = Hops { healthy: Some(now), ..applied };
        vec![
            self.make_report(target, Transition::Applied, now, applied),
            self.make_report(target, Transition::Healthy, now, healthy),
        ]
    }

    fn make_report(&self, target: &TargetStack, transition: Transition, at: Timestamp, hops: Hops) -> Report {
        let report = Report {
            id: EventId(uuid::Uuid::nil()),
            stack_id: target.stack_id,
            sequence_id: target.sequence_id,
            transition,
            at,
            hops,
            reason: Reason::None,
            message: Message::default(),
            objects: Vec::new(),
            conditions: Vec::new(),
            dropped: 0,
            ready: 1,
            total: 1,
        };
        Report { id: report.derived_id(self.identity.agent), ..report }
    }

    /// Sends due reports, and drops them once the broker has acknowledged all of them.
    pub(crate) async fn report(&mut self) -> Result<(), RequestError> {
        let Some((_, reports)) = self.due.clone() else { return Ok(()) };
        let batch = ReportBatch { reports };
        let write = Write::reports(&batch);
        self.receipt(&write, &batch).await?;
        if self.random.chance(self.shared.config.failures.report_twice) {
            self.receipt(&write.with_new_key(), &batch).await?;
        }
        self.due = None;
        Ok(())
    }

    async fn receipt(&mut self, write: &Write, batch: &ReportBatch) -> Result<(), RequestError> {
        let answer = self.settle(write.clone()).await?;
        let receipt: ReportReceipt = read(&answer)?;
        let named = receipt.accepted.len() + receipt.duplicates.len() + receipt.refused.len();
        if named != batch.reports.len() {
            return Err(RequestError::Wrong("the receipt does not name every report"));
        }
        let counters = &self.shared.counters;
        Counters::add(&counters.reports_accepted, receipt.accepted.len() as u64);
        Counters::add(&counters.reports_duplicate, receipt.duplicates.len() as u64);
        Counters::add(&counters.reports_refused, receipt.refused.len() as u64);
        Ok(())
    }
}

fn hops(target: &TargetStack) -> Hops {
    Hops {
        published: Some(target.published_at),
        targeted: Some(target.targeted_at),
        released: Some(target.released_at),
        ..Hops::default()
    }
}
