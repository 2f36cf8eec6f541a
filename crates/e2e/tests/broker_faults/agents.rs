//! Agents without a cluster: they join, poll the replicas in turn, and report the stacks that they received.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use brokkr_api::agents::{Holds, OpenSession};
use brokkr_api::protocol::{Session, holds_digest};
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Hops, Report, ReportBatch, Transition};
use brokkr_api::tokens::CreateJoinToken;
use brokkr_api::{AgentId, EventId, InstanceId, Labels, Position, PositionToken, SequenceId, StackId};
use brokkr_client::{
    AgentIdentity, AgentKey, Client, ClientError, Credential, Poll, PollRequest, RetryPolicy,
};
use brokkr_testkit::history::{Acknowledgement, Change, Outcome, Recorder, Refusal, ServedState, View};
use tokio_util::sync::CancellationToken;

const POLL_WAIT: Duration = Duration::from_secs(2);

/// One agent, as both replicas know it.
#[derive(Clone)]
pub struct FakeAgent {
    pub id: AgentId,
    pub name: String,
    pub identity: AgentIdentity,
    pub clients: Vec<Client>,
    pub session: Session,
    pub recorder: Arc<Recorder>,
}

impl FakeAgent {
    /// Joins at the first replica. `admins` are clients of each replica with an administrator's token.
    pub async fn join(admins: &[Client], name: &str, group: &str, recorder: Arc<Recorder>) -> Result<Self> {
        let labels = Labels::from([("group".to_owned(), group.to_owned())]);
        let wanted: CreateJoinToken =
            serde_json::from_value(serde_json::json!({ "agent_name": name, "labels": labels }))?;
        let token = admins[0].create_join_token(&wanted).await?;
        let key = AgentKey::generate()?;
        let registration = key.registration(&token.token)?;
        let anonymous = admins[0].with_credential(Credential::None);
        let registered = anonymous.register_agent(&registration).await?;
        let identity =
            AgentIdentity { agent_id: registered.agent_id, installation_id: registered.installation_id, key };
        let session = Session { count: 1, instance: InstanceId::generate() };
        let agent = Self {
            id: registered.agent_id,
            name: name.to_owned(),
            clients: clients(admins, &identity),
            identity,
            session,
            recorder,
        };
        let open = OpenSession { count: session.count, instance: session.instance, namespace: None };
        agent.clients[0]
            .with_retry(RetryPolicy::up_to(Duration::from_secs(20)))
            .open_session(agent.id, &open)
            .await?;
        Ok(agent)
    }

    /// Returns the same agent with another key.
    pub fn with_key(&self, admins: &[Client], key: AgentKey) -> Self {
        let identity = AgentIdentity { key, ..self.identity.clone() };
        Self { clients: clients(admins, &identity), identity, ..self.clone() }
    }

    pub fn ask(
        &self,
        position: impl Into<PositionToken>,
        etag: Option<String>,
        wait: Duration,
    ) -> PollRequest {
        PollRequest { position: position.into(), holds: holds_digest([]), session: self.session, etag, wait }
    }

    pub async fn poll(&self, replica: usize, ask: &PollRequest) -> Result<Poll, ClientError> {
        self.clients[replica].target_state(self.id, ask).await
    }

    /// Returns the stacks that the replica serves now.
    pub async fn view(&self, replica: usize) -> Result<View> {
        let ask = self.ask(Position::default(), None, Duration::ZERO);
        match self.poll(replica, &ask).await? {
            Poll::Changed { envelope, .. } => {
                let stacks =
                    envelope.stacks.iter().map(|stack| (stack.stack_id, stack.sequence_id)).collect();
                Ok(View { replica, agent: self.id, stacks })
            }
            Poll::HoldsWanted => {
                self.report_holds(replica).await?;
                bail!("the replica requested the held stacks")
            }
            other => bail!("{other:?}"),
        }
    }

    pub async fn report_holds(&self, replica: usize) -> Result<()> {
        self.clients[replica]
            .put_holds(self.id, self.session, &Holds { stacks: Vec::new(), held: Vec::new() })
            .await?;
        Ok(())
    }

    /// Polls and reports until it is stopped, and finishes the current request.
    pub async fn run(self, first: usize, stop: CancellationToken) -> Result<()> {
        let (mut position, mut etag) = (PositionToken::default(), None);
        let mut reported: HashMap<StackId, SequenceId> = HashMap::new();
        let mut replica = first % self.clients.len();
        while !stop.is_cancelled() {
            let ask = self.ask(position, etag.clone(), POLL_WAIT);
            let polled = tokio::select! {
                polled = self.poll(replica, &ask) => polled,
                () = stop.cancelled() => break,
            };
            match polled {
                Ok(Poll::Changed { envelope, etag: tag, position: at, .. }) => {
                    let (asked, shown) = (position.position, at.position);
                    (position, etag) = (at, Some(tag));
                    let stacks: Vec<_> =
                        envelope.stacks.iter().map(|stack| (stack.stack_id, stack.sequence_id)).collect();
                    self.recorder.served(ServedState {
                        agent: self.id,
                        replica,
                        asked,
                        position: shown,
                        stacks: stacks.clone(),
                    });
                    let new: Vec<_> = stacks
                        .into_iter()
                        .filter(|(stack, sequence)| reported.insert(*stack, *sequence) != Some(*sequence))
                        .collect();
                    self.report(replica, &new).await;
                }
                Ok(Poll::NotModified { position: at, .. }) => position = at,
                Ok(Poll::HoldsWanted) => drop(self.report_holds(replica).await),
                Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            replica = (replica + 1) % self.clients.len();
        }
        Ok(())
    }

    /// Reports until it is acknowledged; sometimes once more, like an agent that lost the acknowledgement.
    async fn report(&self, first: usize, stacks: &[(StackId, SequenceId)]) {
        if stacks.is_empty() {
            return;
        }
        let reports: Vec<Report> =
            stacks.iter().map(|(stack, sequence)| self.applied(*stack, *sequence)).collect();
        let times = if rand::random_bool(0.3) { 2 } else { 1 };
        for time in 0..times {
            self.send_reports_until_known(first + time, &reports).await;
        }
    }

    pub async fn send_reports_until_known(&self, first: usize, reports: &[Report]) -> Outcome {
        let ids: Vec<EventId> = reports.iter().map(|report| report.id).collect();
        let ask = Change::Report { agent: self.id, reports: ids };
        let operation = self.recorder.begin(&format!("reports of {}", self.name), ask);
        let batch = ReportBatch { reports: reports.to_vec() };
        let mut replica = first % self.clients.len();
        loop {
            let began = self.recorder.now();
            let sent =
                tokio::time::timeout(Duration::from_secs(8), self.clients[replica].report(self.id, &batch));
            let outcome = match sent.await {
                Ok(Ok(receipt)) => {
                    let durable = receipt.accepted.into_iter().chain(receipt.duplicates).collect();
                    let is_refused = |report: &&Report| receipt.refused.contains(&report.id);
                    let refused = reports.iter().filter(is_refused);
                    let refused = refused.map(|report| (report.id, report.stack_id)).collect();
                    Outcome::Acknowledged(Acknowledgement::Receipt { durable, refused })
                }
                Ok(Err(error @ ClientError::Problem { .. })) if !error.is_transient() => {
                    Outcome::Refused(Refusal { code: error.code(), text: error.to_string() })
                }
                Ok(Err(error)) => Outcome::Unknown(error.to_string()),
                Err(_) => Outcome::Unknown("no answer".into()),
            };
            self.recorder.record_attempt(operation, replica, began, outcome.clone());
            if !matches!(outcome, Outcome::Unknown(_)) {
                return outcome;
            }
            replica = (replica + 1) % self.clients.len();
            tokio::time::sleep(Duration::from_millis(rand::random_range(50..200))).await;
        }
    }

    pub fn applied(&self, stack: StackId, sequence: SequenceId) -> Report {
        let mut report = Report {
            id: EventId::generate(),
            stack_id: stack,
            sequence_id: sequence,
            transition: Transition::Applied,
            at: jiff::Timestamp::now(),
            hops: Hops::default(),
            reason: Reason::None,
            message: Message::default(),
            objects: Vec::new(),
            conditions: Vec::new(),
            dropped: 0,
            ready: 1,
            total: 1,
        };
        report.id = report.derived_id(self.id);
        report
    }
}

fn clients(admins: &[Client], identity: &AgentIdentity) -> Vec<Client> {
    admins.iter().map(|admin| admin.with_credential(Credential::Agent(identity.clone()))).collect()
}
