//! One agent: its state, and its loop of turns.
//!
//! A turn opens the session if necessary, sends reports that are due, and polls. After an error, the agent
//! connects again after a random pause: after the first error, at most the spread that the broker requested;
//! after further ones, at most an increasing back-off, if that is longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brokkr_api::agents::{HeldStack, Holds, OpenedSession, SessionVerdict};
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::protocol::{Session, header, holds_digest, same_etag};
use brokkr_api::report::Report;
use brokkr_api::{ErrorCode, PositionToken, Problem, SequenceId, StackId};
use http::header::{ETAG, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

use crate::config::Broker;
use crate::counts::{Counters, Present};
use crate::identity::Identity;
use crate::random::Random;
use crate::request::{Endpoint, Poll, Write};
use crate::swarm::Shared;
use crate::wire::{RequestError, Response, Wire};

/// An assertion is renewed this long before it expires, or up to twice as long, at random.
const RENEW_SECONDS: i64 = 60;
/// How much longer than the requested wait a response may take.
const GRACE: Duration = Duration::from_secs(30);
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);

/// A stack that the agent holds, and the sequence id that it has.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub stack: StackId,
    pub sequence: SequenceId,
    /// The newest version that an answer has named.
    pub begun: SequenceId,
    /// Whether that version fails here.
    pub fails: bool,
}

pub struct Agent {
    pub(crate) number: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) identity: Identity,
    pub(crate) random: Random,
    pub(crate) held: Vec<Held>,
    /// Reports, and the time when they are due. Kept until they are acknowledged, as an agent does in its cluster.
    pub(crate) due: Option<(Instant, Vec<Report>)>,
    session: Session,
    serves: bool,
    wire: Option<Wire>,
    broker: usize,
    /// For reading, and when it expires.
    assertion: (String, i64),
    position: PositionToken,
    etag: Option<Checksum>,
    /// A write that was sent and not yet acknowledged; it is sent again with the same key.
    unsettled: Option<Write>,
    spread: Duration,
    failures: u32,
}

impl Agent {
    pub fn new(number: usize, identity: Identity, shared: Arc<Shared>) -> Self {
        let random = Random::new(shared.config.seed, number);
        let (session, serves) = (identity.session, identity.enrolled);
        // Agents that share a connection use the same replica.
        let connection = shared.config.transport.connection(number);
        let has = |(stack, sequence): &(StackId, SequenceId)| Held {
            stack: *stack,
            sequence: *sequence,
            begun: *sequence,
            fails: false,
        };
        let held = shared.config.held.iter().map(has).collect();
        let (spread, broker) = (shared.config.start_within, connection % shared.config.brokers.len().max(1));
        Self {
            number,
            shared,
            identity,
            random,
            held,
            due: None,
            session,
            serves,
            wire: None,
            broker,
            assertion: Default::default(),
            position: PositionToken::default(),
            etag: None,
            unsettled: None,
            spread,
            failures: 0,
        }
    }

    pub async fn run(mut self) {
        tokio::time::sleep(self.spread.mul_f64(self.random.part())).await;
        let shared = Arc::clone(&self.shared);
        loop {
            let _connected;
            let error = match self.connect().await {
                Ok(()) => {
                    _connected = Present::enter(&shared.counters.connected);
                    self.turns().await
                }
                Err(error) => error,
            };
            self.wire = None;
            self.back_off(&error).await;
        }
    }

    /// Runs one turn after the other on one connection, until one fails.
    async fn turns(&mut self) -> RequestError {
        loop {
            if let Err(error) = Box::pin(self.turn()).await {
                return error;
            }
            self.failures = 0;
        }
    }

    async fn turn(&mut self) -> Result<(), RequestError> {
        if !self.serves {
            self.open_session().await?;
        }
        if self.due.as_ref().is_some_and(|(at, _)| *at <= Instant::now()) {
            self.report().await?;
        }
        let failures = self.shared.config.failures;
        if self.random.chance(failures.reconnect) {
            return Err(RequestError::Cut("at random".into()));
        }
        if self.random.chance(failures.silence) {
            Counters::one(&self.shared.counters.silences);
            let silence = self.random.within(&self.shared.config.silence);
            tokio::time::sleep(silence).await;
        }
        self.poll().await
    }

    async fn connect(&mut self) -> Result<(), RequestError> {
        let shared = Arc::clone(&self.shared);
        let wire = Box::pin(shared.dialer.connect(self.broker(), self.number)).await?;
        Counters::one(&shared.counters.connects);
        self.wire = Some(wire);
        Ok(())
    }

    /// Pauses before the next attempt, which goes to the next replica. The jitter is applied after the cap, so that a fleet
    /// does not reconnect in step.
    async fn back_off(&mut self, error: &RequestError) {
        let counters = &self.shared.counters;
        Counters::one(&counters.troubles);
        self.shared.remember(self.number, error);
        let mut pause = self.spread;
        if self.failures > 0 {
            let backoff = Duration::from_millis(250).saturating_mul(1 << self.failures.min(6));
            pause = pause.max(backoff.min(LONGEST_BACKOFF));
        }
        let mut least = Duration::ZERO;
        if let RequestError::Refused { status, retry_after, .. } = error
            && [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(status)
        {
            Counters::one(&counters.pushed_back);
            least = retry_after.unwrap_or_default();
        }
        self.failures += 1;
        self.broker = (self.broker + 1) % self.shared.config.brokers.len().max(1);
        tokio::time::sleep(least + pause.mul_f64(self.random.part())).await;
    }

    async fn open_session(&mut self) -> Result<(), RequestError> {
        let answer = self.settle(Write::session(self.session)).await?;
        let opened: OpenedSession = read(&answer)?;
        if opened.verdict != SessionVerdict::Serves {
            return Err(RequestError::Wrong("another process claims to be this agent"));
        }
        self.serves = true;
        Counters::one(&self.shared.counters.sessions);
        Ok(())
    }

    /// Announces a stack, before anything of it is written. The agent holds it once the broker has accepted that.
    pub(crate) async fn announce(&mut self, stack: StackId) -> Result<(), RequestError> {
        self.held.push(Held { stack, sequence: SequenceId(0), begun: SequenceId(0), fails: false });
        let told = self.tell_holds(Vec::new()).await;
        if told.is_err() {
            self.held.retain(|held| held.stack != stack);
        }
        told
    }

    /// Tells the broker, which asked, what the agent has.
    async fn report_holds(&mut self) -> Result<(), RequestError> {
        let details = |held: &Held| HeldStack {
            stack_id: held.stack,
            project: DEFAULT_PROJECT.to_owned(),
            stack_name: held.stack.to_string(),
            sequence_id: held.sequence,
            checksum: None,
            removing: false,
        };
        self.tell_holds(self.held.iter().map(details).collect()).await
    }

    async fn tell_holds(&mut self, held: Vec<HeldStack>) -> Result<(), RequestError> {
        let holds = Holds { stacks: self.held.iter().map(|held| held.stack).collect(), held };
        let answer = self.settle(Write::holds(self.session, &holds)).await?;
        self.position = self.position.later(position(&answer.headers)?);
        Counters::one(&self.shared.counters.holds);
        Ok(())
    }

    async fn poll(&mut self) -> Result<(), RequestError> {
        let wait = self.wait();
        let poll = Poll {
            position: self.position,
            holds: holds_digest(self.held.iter().map(|held| held.stack)),
            session: self.session,
            etag: self.etag,
            wait_seconds: wait.as_secs(),
        };
        let shared = Arc::clone(&self.shared);
        self.renew()?;
        let request = self.endpoint().poll(&poll).map_err(|_| RequestError::Wrong("no request"))?;
        let waiting = Present::enter(&shared.counters.waiting);
        let answer = self.exchange(request, wait + GRACE).await?;
        drop(waiting);
        Counters::one(&shared.counters.polls);
        if has_code(&answer, ErrorCode::BRK3001) {
            return self.report_holds().await;
        }
        let answer = accepted(answer)?;
        let found = position(&answer.headers)?;
        if found.position < self.position.position {
            return Err(RequestError::Wrong("it is older than the previous one"));
        }
        self.position = found;
        if let Some(seconds) = number(&answer.headers, header::SPREAD) {
            self.spread = Duration::from_secs(seconds);
        }
        if answer.status == StatusCode::NOT_MODIFIED {
            if self.etag.is_none() {
                return Err(RequestError::Wrong("304 to an agent without a tag"));
            }
            Counters::one(&shared.counters.not_modified);
            tokio::time::sleep(shared.config.pause).await;
            return Ok(());
        }
        let envelope = self.envelope(&answer)?;
        Counters::one(&shared.counters.changed);
        shared.answered.note(self.number);
        Box::pin(self.work(&envelope)).await?;
        // Only now, so that after a failure the broker sends the same answer again.
        self.etag = Some(Checksum::of(&answer.body));
        Ok(())
    }

    /// Returns how long the next poll may wait: not longer than until the next report is due.
    fn wait(&mut self) -> Duration {
        let wait = self.shared.config.wait;
        let wait = wait.mul_f64(1.0 - self.random.part() / 10.0);
        match &self.due {
            Some((at, _)) if !wait.is_zero() => {
                let left = at.saturating_duration_since(Instant::now());
                wait.min(left.max(Duration::from_secs(1)))
            }
            _ => wait,
        }
    }

    fn envelope(&self, answer: &Response) -> Result<Envelope, RequestError> {
        let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
        if !same_etag(tag, &Checksum::of(&answer.body).to_string()) {
            return Err(RequestError::Wrong("its tag does not match"));
        }
        let envelope: Envelope = read(answer)?;
        if envelope.agent != self.identity.agent || envelope.installation != self.shared.config.installation {
            return Err(RequestError::Wrong("it is for another agent"));
        }
        Ok(envelope)
    }

    /// Sends a write, and keeps it for a retry with the same key until its outcome is known. A pending earlier write is sent
    /// first.
    pub(crate) async fn settle(&mut self, write: Write) -> Result<Response, RequestError> {
        let write = match self.unsettled.clone() {
            Some(before) if before.is_same(&write) => before,
            Some(before) => {
                let done = self.send(&before).await;
                self.unsettled = self.unsettled.take().filter(|_| is_open(&done));
                if self.unsettled.is_some() {
                    return done;
                }
                write
            }
            None => write,
        };
        let done = self.send(&write).await;
        self.unsettled = Some(write).filter(|_| is_open(&done));
        done
    }

    async fn send(&mut self, write: &Write) -> Result<Response, RequestError> {
        let (agent, installation) = (self.identity.agent, self.shared.config.installation);
        let now = Timestamp::now().as_second();
        let signed = self.identity.write_assertion(installation, now, write.bound(agent));
        let assertion = signed.map_err(|_| RequestError::Wrong("the key cannot sign"))?;
        let endpoint = Endpoint { assertion: &assertion, ..self.endpoint() };
        let request = endpoint.write(write).map_err(|_| RequestError::Wrong("no request"))?;
        let lose = self.random.chance(self.shared.config.failures.lost_answer);
        let within = if lose { Duration::from_millis(self.random.next() % 30) } else { GRACE };
        let answer = self.exchange(request, within).await;
        if lose && answer.is_err() {
            Counters::one(&self.shared.counters.lost_answers);
        }
        accepted(answer?)
    }

    pub(crate) async fn content(&mut self, sequence: SequenceId) -> Result<Response, RequestError> {
        self.renew()?;
        let request = self.endpoint().content(sequence).map_err(|_| RequestError::Wrong("no request"))?;
        accepted(self.exchange(request, GRACE).await?)
    }

    async fn exchange(
        &mut self,
        request: http::Request<http_body_util::Full<bytes::Bytes>>,
        within: Duration,
    ) -> Result<Response, RequestError> {
        let wire = self.wire.as_mut().ok_or(RequestError::Wrong("no connection"))?;
        match tokio::time::timeout(within, Box::pin(wire.exchange(request))).await {
            Ok(answer) => answer,
            Err(_) => Err(RequestError::Cut("no answer in time".into())),
        }
    }

    fn renew(&mut self) -> Result<(), RequestError> {
        let now = Timestamp::now().as_second();
        let early = i64::try_from(self.random.next() % RENEW_SECONDS.unsigned_abs()).unwrap_or_default();
        if self.assertion.1 - now < RENEW_SECONDS + early {
            let signed = self.identity.read_assertion(self.shared.config.installation, now);
            self.assertion = signed.map_err(|_| RequestError::Wrong("the key cannot sign"))?;
        }
        Ok(())
    }

    fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            broker: self.broker(),
            transport: self.shared.config.transport,
            agent: self.identity.agent,
            assertion: &self.assertion.0,
        }
    }

    fn broker(&self) -> &Broker {
        &self.shared.config.brokers[self.broker]
    }
}

/// Returns whether the outcome of a write is unknown. A refusal is final, unless a retry may succeed.
fn is_open(done: &Result<Response, RequestError>) -> bool {
    match done {
        Ok(_) => false,
        Err(RequestError::Refused { status, .. }) => {
            status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
        }
        Err(_) => true,
    }
}

pub fn read<T: serde::de::DeserializeOwned>(answer: &Response) -> Result<T, RequestError> {
    serde_json::from_slice(&answer.body).map_err(|_| RequestError::Wrong("it cannot be parsed"))
}

fn accepted(answer: Response) -> Result<Response, RequestError> {
    if answer.status.is_success() || answer.status == StatusCode::NOT_MODIFIED {
        return Ok(answer);
    }
    let retry_after = number(&answer.headers, RETRY_AFTER.as_str()).map(Duration::from_secs);
    let body = String::from_utf8_lossy(&answer.body).chars().take(300).collect();
    Err(RequestError::Refused { status: answer.status, body, retry_after })
}

fn has_code(answer: &Response, code: ErrorCode) -> bool {
    answer.status.is_client_error()
        && serde_json::from_slice::<Problem>(&answer.body).is_ok_and(|problem| problem.code == code)
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn position(headers: &HeaderMap) -> Result<PositionToken, RequestError> {
    let text = headers.get(header::POSITION).and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).ok_or(RequestError::Wrong("it has no position"))
}
