//! The long poll: sends changes of the target state to the reconciler.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brokkr_api::agents::{AgentStatus, OpenedSession, SessionVerdict};
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{Session, Want};
use brokkr_api::{AgentId, ErrorCode, PositionToken};
use brokkr_client::plausible::check_sequence_ids;
use brokkr_client::{Client as Broker, ClientError, InvalidResponse, Poll, PollRequest};
use tokio::sync::{mpsc, watch};

use super::holds::{Held, HeldStacks};
use super::keys::Keys;
use super::memory::{Memory, open_session};
use super::stand_down::{StandDown, successor_is_here};
use super::upgrade_signals::UpgradeSignals;
use crate::backoff::Backoff;
use crate::metrics::Metrics;
use crate::own_objects::RequestError;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));

/// A message to the reconciler.
#[derive(Debug)]
pub enum BrokerMessage {
    Target(Box<Envelope>),
    /// Another process uses this agent's identity.
    StopWriting(&'static str),
    ResumeWriting,
    /// The broker is unreachable, or on hold after a restore of its database, and has sent no target state
    /// since this process started; and the agent was ACTIVE in its last run.
    BrokerUnreachable,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    Done,
    /// The process has to start again, with the session count that was stored.
    Restart,
}

pub struct BrokerLink {
    pub broker: Broker,
    pub agent: AgentId,
    /// The agent's own namespace.
    pub home: Arc<str>,
    pub session: Session,
    pub memory: Memory,
    /// No earlier run has stored that it opened a session, so the count of this run may be too low.
    pub lacks_stored_state: bool,
    pub position: PositionToken,
    /// The agent was ACTIVE in its last run, and this run has no target state yet.
    pub may_continue_without_broker: bool,
    /// The maximum time that a poll waits for a change.
    pub interval: Duration,
    /// After this time, a superseded process that still runs starts again.
    pub return_after: Duration,
    /// The channel to the reconciler.
    pub news: mpsc::UnboundedSender<BrokerMessage>,
    pub holds: HeldStacks,
    pub keys: Keys,
    pub upgrade: UpgradeSignals,
    pub metrics: Metrics,
}

impl BrokerLink {
    pub async fn run(mut self) {
        if self.open_session().await == Opened::Restart {
            return;
        }
        let mut held = self.holds.subscribe();
        let mut etag: Option<String> = None;
        let mut failures = 0u32;
        let mut writes_suspended = false;
        let mut standing_down = StandDown::default();
        let mut behind = BTreeSet::new();
        loop {
            let now_held = held.borrow_and_update().clone();
            self.position = self.position.later(now_held.position);
            let request = PollRequest {
                position: self.position,
                holds: now_held.digest(),
                session: self.session,
                etag: etag.clone(),
                wait: self.interval,
            };
            let started = Instant::now();
            // When the held stacks change, the digest of the running poll is stale: poll again.
            let poll = tokio::select! {
                poll = self.broker.target_state(self.agent, &request) => poll,
                () = changed(&mut held, request.holds) => continue,
            };
            match poll {
                Ok(poll) => {
                    failures = 0;
                    self.metrics.heard();
                    if !matches!(poll, Poll::Superseded | Poll::Duplicated) && writes_suspended {
                        writes_suspended = false;
                        let _ = self.news.send(BrokerMessage::ResumeWriting);
                    }
                    if !matches!(poll, Poll::Superseded) {
                        standing_down.ended();
                    }
                    match poll {
                        Poll::NotModified { position, wants, .. } => {
                            self.position = self.position.later(position);
                            self.heed(wants).await;
                            // An early response comes from a broker that shuts down, or from a proxy that does not wait.
                            if started.elapsed() < self.interval / 2 {
                                tokio::time::sleep((self.interval / 2).min(Duration::from_secs(1))).await;
                            }
                        }
                        // The same ETag: nothing changed, but a proxy ignored If-None-Match.
                        Poll::Changed { etag: tag, position, .. } if etag.as_ref() == Some(&tag) => {
                            self.position = self.position.later(position);
                            tokio::time::sleep(self.interval).await;
                        }
                        Poll::Changed { envelope, etag: tag, position, wants, .. } => {
                            let known = self.holds.highest_sequence_id();
                            let sent = envelope.stacks.iter().map(|stack| stack.sequence_id);
                            if let Err(implausible) = check_sequence_ids(known, sent) {
                                self.refuse(implausible.reason(), &implausible.to_string()).await;
                                self.pause(&mut failures, Some(self.interval)).await;
                                continue;
                            }
                            if let Some(target) = self.holds.contradicted_by(&envelope.stacks) {
                                let what = format!(
                                    "it names another content for sequence id {} of stack {} than this agent has; \
                                     submit the stack again",
                                    target.sequence_id, target.stack_name
                                );
                                self.refuse("sequence_id_reused", &what).await;
                                self.report_holds().await;
                                self.pause(&mut failures, Some(self.interval)).await;
                                continue;
                            }
                            self.position = self.position.later(position);
                            self.may_continue_without_broker = false;
                            if let Err(error) = self.remember(envelope.status).await {
                                tracing::warn!(
                                    %error,
                                    "failed to store the last position from the broker; polling again"
                                );
                                self.pause(&mut failures, None).await;
                                continue;
                            }
                            etag = Some(tag);
                            let named = self.holds.behind(&envelope.stacks);
                            if self.news.send(BrokerMessage::Target(envelope)).is_err() {
                                return;
                            }
                            // After a restore, the broker learns from this that it has lost versions.
                            if !named.is_subset(&behind) {
                                self.report_holds().await;
                            }
                            behind = named;
                            self.heed(wants).await;
                        }
                        Poll::HoldsWanted => self.report_holds().await,
                        Poll::Behind { retry_after, .. } => self.pause(&mut failures, retry_after).await,
                        Poll::OnHold { retry_after } => {
                            tracing::warn!(
                                "the broker is on hold after a restore; keeping the last known state"
                            );
                            self.continue_without_broker();
                            self.pause(&mut failures, retry_after).await;
                        }
                        Poll::Superseded => {
                            self.stop_writing(
                                &mut writes_suspended,
                                "a newer session of this agent is active",
                            )
                            .await;
                            let is_overdue = standing_down.is_overdue(Instant::now(), self.return_after);
                            if is_overdue && !self.upgrade.is_under_way() && self.successor_is_here().await {
                                tracing::warn!(
                                    "the newer process of this agent has not replaced this one; starting again"
                                );
                                return;
                            }
                        }
                        Poll::Duplicated => {
                            self.stop_writing(&mut writes_suspended, "another process has the same session")
                                .await;
                        }
                        Poll::NotIssued => {
                            let what = format!(
                                "this broker did not issue position {}, which this agent has seen; if this broker \
                                 is the right one, run `brokkr-agent forget-position` and restart the agent",
                                self.position.position
                            );
                            self.refuse("position_not_issued", &what).await;
                            self.continue_without_broker();
                            self.pause(&mut failures, Some(self.interval)).await;
                        }
                    }
                }
                Err(error) => {
                    standing_down.ended();
                    self.on_poll_failed(&error, &mut failures).await;
                }
            }
        }
    }

    /// Opens the session. Until the broker responds, the agent keeps and repairs the last known state.
    async fn open_session(&mut self) -> Opened {
        let mut failures = 0;
        loop {
            match open_session(&self.broker, self.agent, self.session, &self.home).await {
                Ok(OpenedSession { verdict: SessionVerdict::Serves, .. }) => {
                    if let Err(error) = self.memory.keep_opened().await {
                        tracing::warn!(%error, "failed to store that a session was opened");
                    }
                    return Opened::Done;
                }
                Ok(OpenedSession { count, .. }) if self.lacks_stored_state && count >= self.session.count => {
                    tracing::warn!(
                        count,
                        "this agent's stored state was lost; restarting with a higher session count"
                    );
                    match self.memory.keep_session(count).await {
                        Ok(()) => return Opened::Restart,
                        Err(error) => tracing::warn!(%error, "failed to store the session count; retrying"),
                    }
                    self.pause(&mut failures, None).await;
                }
                Ok(OpenedSession { verdict, .. }) => {
                    tracing::error!(?verdict, "another process uses this agent's identity");
                    return Opened::Done;
                }
                Err(error) => {
                    tracing::warn!("failed to open a session: {error:#}; retrying");
                    self.metrics.unheard();
                    // A broker that refuses is reachable, so the agent does not continue without it.
                    let refused = matches!(
                        error.downcast_ref(),
                        Some(ClientError::Problem { problem, .. }) if !problem.code.is_transient()
                    );
                    if refused {
                        self.keys.on_refused().await;
                    } else {
                        self.continue_without_broker();
                    }
                    self.pause(&mut failures, None).await;
                }
            }
        }
    }

    /// A9: if the broker has sent no target state since this process started, the records take its place.
    fn continue_without_broker(&mut self) {
        if std::mem::take(&mut self.may_continue_without_broker) {
            let _ = self.news.send(BrokerMessage::BrokerUnreachable);
        }
    }

    /// Does what the broker wants in addition. The key is also replaced when it is due.
    async fn heed(&mut self, want: Option<Want>) {
        if want == Some(Want::Upgrade) {
            self.upgrade.want();
        }
        self.keys.rotate_if_due(want == Some(Want::Key)).await;
    }

    async fn remember(&self, status: AgentStatus) -> Result<(), RequestError> {
        self.memory.keep_position(self.position).await?;
        self.memory.keep_status(status).await?;
        self.memory.keep_refused(None).await
    }

    /// Logs, counts and stores that nothing new is accepted; the agent keeps and repairs the last known state.
    async fn refuse(&mut self, reason: &'static str, what: &str) {
        tracing::error!(reason, "refused the broker's response: {what}; keeping the last known state");
        self.metrics.refused(reason);
        if let Err(error) = self.memory.keep_refused(Some(reason)).await {
            tracing::warn!(%error, "failed to store why the broker's response was refused");
        }
    }

    async fn report_holds(&mut self) {
        if let Err(error) = self.holds.report().await {
            tracing::warn!(%error, "failed to send the list of this agent's stacks; retrying");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn stop_writing(&mut self, writes_suspended: &mut bool, why: &'static str) {
        if !*writes_suspended {
            tracing::error!(why, "writes are suspended");
            *writes_suspended = true;
            let _ = self.news.send(BrokerMessage::StopWriting(why));
        }
        tokio::time::sleep(self.interval.max(Duration::from_secs(1))).await;
    }

    /// Returns whether the newer process runs in this cluster. If this is not known, it may run elsewhere.
    async fn successor_is_here(&self) -> bool {
        match self.memory.newest_session().await {
            Ok(newest) => successor_is_here(self.session.count, newest),
            Err(error) => {
                tracing::warn!(%error, "failed to read the session count; retrying");
                false
            }
        }
    }

    /// Keeps the last known state after a failed poll, and waits before the next one.
    async fn on_poll_failed(&mut self, error: &ClientError, failures: &mut u32) {
        tracing::warn!(%error, "failed to get the target state; keeping the last known state and retrying");
        self.metrics.unheard();
        if let ClientError::InvalidResponse { what: InvalidResponse::Implausible(implausible), .. } = error {
            self.refuse(implausible.reason(), &implausible.to_string()).await;
        }
        if error.code() == Some(ErrorCode::BRK1001) {
            self.keys.on_refused().await;
        }
        self.pause(failures, error.retry_after()).await;
    }

    /// Waits before the next attempt, with jitter, so that the agents of a fleet do not retry at the same time.
    async fn pause(&mut self, failures: &mut u32, at_least: Option<Duration>) {
        *failures = failures.saturating_add(1);
        tokio::time::sleep(at_least.unwrap_or_default().max(BACKOFF.jittered(*failures))).await;
    }
}

async fn changed(holds: &mut watch::Receiver<Held>, sent: Checksum) {
    loop {
        if holds.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if holds.borrow().digest() != sent {
            return;
        }
    }
}
