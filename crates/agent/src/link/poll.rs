//! The long poll: tells the reconciler what changed, and nothing when nothing did.

use std::time::{Duration, Instant};

use brokkr_api::agents::{AgentStatus, SessionVerdict};
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{Session, Want};
use brokkr_api::{AgentId, ErrorCode, Position};
use brokkr_client::{Client as Broker, ClientError, Poll, PollRequest};
use rand::RngExt as _;
use tokio::sync::{mpsc, watch};

use super::holds::{Held, HeldStacks};
use super::keys::Keys;
use super::memory::{Memory, open_session};
use crate::keep::own::RequestError;
use crate::metrics::Metrics;

/// What the link tells the reconciler.
#[derive(Debug)]
pub enum News {
    Target(Box<Envelope>),
    /// Another process serves, or claims to: stop writing.
    StandDown(&'static str),
    StandUp,
    /// Nothing was heard of the broker since this run began, and it was ACTIVE when it was last heard of.
    Silence,
}

pub struct Link {
    pub broker: Broker,
    pub agent: AgentId,
    pub session: Session,
    pub memory: Memory,
    pub position: Position,
    /// Whether the broker last said that this agent is ACTIVE.
    pub may_go_on_alone: bool,
    pub interval: Duration,
    pub news: mpsc::UnboundedSender<News>,
    pub holds: HeldStacks,
    pub keys: Keys,
    pub metrics: Metrics,
}

impl Link {
    pub async fn run(mut self) {
        self.open_session().await;
        let mut held = self.holds.subscribe();
        let mut etag: Option<String> = None;
        let mut failures = 0u32;
        let mut stood_down = false;
        loop {
            let now_held = held.borrow_and_update().clone();
            self.position = self.position.max(now_held.position);
            let request = PollRequest {
                position: self.position,
                holds: now_held.digest(),
                session: self.session,
                etag: etag.clone(),
                wait: self.interval,
            };
            let asked = Instant::now();
            // A change of what is held makes the running poll's digest stale: ask anew.
            let poll = tokio::select! {
                poll = self.broker.target_state(self.agent, &request) => poll,
                () = changed(&mut held, request.holds) => continue,
            };
            match poll {
                Ok(poll) => {
                    failures = 0;
                    self.metrics.heard();
                    if !matches!(poll, Poll::Superseded | Poll::Tied | Poll::Ahead) && stood_down {
                        stood_down = false;
                        let _ = self.news.send(News::StandUp);
                    }
                    match poll {
                        Poll::NotModified { position, wants, .. } => {
                            self.position = self.position.max(position);
                            self.give(wants).await;
                            // Answered before its time, by a broker that drains or a proxy that does not wait.
                            if asked.elapsed() < self.interval / 2 {
                                tokio::time::sleep((self.interval / 2).min(Duration::from_secs(1))).await;
                            }
                        }
                        // Somebody in between ignores If-None-Match: not a change, and not a reason to hurry.
                        Poll::Changed { etag: tag, position, .. } if etag.as_ref() == Some(&tag) => {
                            self.position = self.position.max(position);
                            tokio::time::sleep(self.interval).await;
                        }
                        Poll::Changed { envelope, etag: tag, position, wants, .. } => {
                            self.position = self.position.max(position);
                            self.may_go_on_alone = false;
                            if let Err(error) = self.remember(envelope.status).await {
                                tracing::warn!(%error, "position not kept; asking again");
                                self.pause(&mut failures, None).await;
                                continue;
                            }
                            etag = Some(tag);
                            let ahead = self.holds.are_ahead_of(&envelope.stacks);
                            if self.news.send(News::Target(envelope)).is_err() {
                                return;
                            }
                            if ahead {
                                self.tell_holds().await;
                            }
                            self.give(wants).await;
                        }
                        Poll::HoldsWanted => self.tell_holds().await,
                        Poll::Behind { retry_after, .. } => self.pause(&mut failures, retry_after).await,
                        Poll::Held { retry_after } => {
                            tracing::warn!("the broker is on hold; keeping and repairing what is there");
                            self.go_on_alone();
                            self.pause(&mut failures, retry_after).await;
                        }
                        Poll::Superseded => self.stand_down(&mut stood_down, "a newer session serves").await,
                        Poll::Tied => {
                            self.stand_down(&mut stood_down, "another process has the same session").await;
                        }
                        Poll::Ahead => {
                            self.stand_down(
                                &mut stood_down,
                                "the broker's database is older than what was seen",
                            )
                            .await;
                        }
                    }
                }
                Err(error) => self.complain(&error, &mut failures).await,
            }
        }
    }

    /// Until the broker answers, the last known state is kept and repaired.
    async fn open_session(&mut self) {
        let mut failures = 0;
        loop {
            match open_session(&self.broker, self.agent, self.session).await {
                Ok(SessionVerdict::Serves) => return,
                Ok(verdict) => {
                    tracing::error!(
                        ?verdict,
                        "another process claims to be this agent; the broker will say so at each poll"
                    );
                    return;
                }
                Err(error) => {
                    tracing::warn!("cannot open a session yet: {error:#}");
                    self.metrics.unheard();
                    // A broker that answers with a refusal is not away.
                    let refused = matches!(
                        error.downcast_ref(),
                        Some(ClientError::Problem { problem, .. }) if !problem.code.is_transient()
                    );
                    if refused {
                        self.keys.refused().await;
                    } else {
                        self.go_on_alone();
                    }
                    self.pause(&mut failures, None).await;
                }
            }
        }
    }

    /// A9: if nothing was heard since this run began, what the cluster holds is what should be.
    fn go_on_alone(&mut self) {
        if std::mem::take(&mut self.may_go_on_alone) {
            let _ = self.news.send(News::Silence);
        }
    }

    /// What the broker asks for; and a new key, if it is time for one.
    async fn give(&mut self, wanted: Option<Want>) {
        self.keys.look(wanted == Some(Want::Key)).await;
    }

    async fn remember(&self, status: AgentStatus) -> Result<(), RequestError> {
        self.memory.keep_position(self.position).await?;
        self.memory.keep_status(status).await
    }

    async fn tell_holds(&mut self) {
        if let Err(error) = self.holds.tell().await {
            tracing::warn!(%error, "the list of held stacks was not delivered");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn stand_down(&mut self, stood_down: &mut bool, why: &'static str) {
        if !*stood_down {
            tracing::error!(why, "standing down: nothing is written until this is settled");
            *stood_down = true;
            let _ = self.news.send(News::StandDown(why));
        }
        tokio::time::sleep(self.interval.max(Duration::from_secs(1))).await;
    }

    /// The answer was wrong or did not come: nothing changes, and it is asked again.
    async fn complain(&mut self, error: &ClientError, failures: &mut u32) {
        tracing::warn!(%error, "no target state; keeping what is there");
        self.metrics.unheard();
        if error.code() == Some(ErrorCode::BRK1001) {
            self.keys.refused().await;
        }
        self.pause(failures, error.retry_after()).await;
    }

    /// Jitter after the cap, so that a fleet does not come back in step.
    async fn pause(&mut self, failures: &mut u32, asked: Option<Duration>) {
        *failures = (*failures + 1).min(6);
        let backoff = Duration::from_millis(250).saturating_mul(1 << *failures).min(Duration::from_secs(15));
        let jitter = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(asked.unwrap_or_default().max(backoff.mul_f64(jitter))).await;
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
