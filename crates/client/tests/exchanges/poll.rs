//! Which responses to a poll an agent accepts, and which it rejects.

use std::time::Duration;

use crate::scripted::{Scripted, answer, header};
use brokkr_api::agents::{AgentStatus, Holds};
use brokkr_api::assertion::{AssertionClaims, BoundRequest};
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{ENVELOPE_MEDIA_TYPE, PROTOCOL_VERSION, Session, holds_digest};
use brokkr_api::{AgentId, ErrorCode, InstallationId, InstanceId, Position, Problem};
use brokkr_client::{
    AgentIdentity, AgentKey, Client, ClientError, Credential, InvalidResponse, Poll, PollRequest,
};

struct Agent {
    identity: AgentIdentity,
    envelope: Envelope,
}

impl Agent {
    fn new() -> Self {
        let (agent_id, installation_id) = (AgentId::generate(), InstallationId::generate());
        let identity = AgentIdentity { agent_id, installation_id, key: AgentKey::generate().unwrap() };
        let envelope = Envelope {
            protocol: PROTOCOL_VERSION,
            installation: installation_id,
            agent: agent_id,
            status: AgentStatus::Active,
            stacks: vec![],
            health_rules: None,
        };
        Self { identity, envelope }
    }

    /// Returns a valid response with the envelope.
    fn good(&self) -> String {
        let body = serde_json::to_string(&self.envelope).unwrap();
        let etag = format!("W/\"{}\"", Checksum::of(body.as_bytes()));
        let headers = [("content-type", ENVELOPE_MEDIA_TYPE), ("etag", &etag), ("brokkr-position", "5.70")];
        answer("200 OK", &headers, &body)
    }

    async fn poll(&self, answers: Vec<String>) -> (Result<Poll, ClientError>, Vec<String>) {
        let broker = Scripted::start(answers).await;
        let client = Client::builder(broker.url.clone())
            .credential(Credential::Agent(self.identity.clone()))
            .build()
            .unwrap();
        let request = PollRequest {
            position: Position { epoch: 5, horizon: 70 }.into(),
            holds: holds_digest([]),
            session: Session { count: 3, instance: InstanceId::generate() },
            etag: Some("\"before\"".to_owned()),
            wait: Duration::from_secs(30),
        };
        let poll = client.target_state(self.identity.agent_id, &request).await;
        (poll, broker.asked())
    }

    async fn refusal_of(&self, answer: String) -> InvalidResponse {
        match self.poll(vec![answer]).await.0 {
            Err(ClientError::InvalidResponse { what, .. }) => what,
            other => panic!("expected an invalid response, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_complete_response_for_this_agent_is_accepted() {
    let agent = Agent::new();
    let (poll, asked) = agent.poll(vec![agent.good()]).await;
    let Ok(Poll::Changed { envelope, position, .. }) = poll else { panic!("{poll:?}") };
    assert_eq!((*envelope, position), (agent.envelope.clone(), Position { epoch: 5, horizon: 70 }.into()));
    assert_eq!(header(&asked[0], "prefer").unwrap(), "wait=30");
    assert_eq!(header(&asked[0], "if-none-match").unwrap(), "\"before\"");
    assert_eq!(header(&asked[0], "brokkr-position").unwrap(), "5.70");
    assert!(header(&asked[0], "authorization").unwrap().starts_with("Bearer ey"));
}

#[tokio::test]
async fn a_truncated_or_changed_response_is_rejected() {
    let agent = Agent::new();
    let whole = agent.good();
    assert!(matches!(agent.refusal_of(whole[..whole.len() - 7].to_owned()).await, InvalidResponse::CutOff));
    // A proxy that changes the body and keeps its length: only the entity tag reveals it.
    let changed = whole.replace("ACTIVE", "ACTIVF");
    assert!(matches!(agent.refusal_of(changed).await, InvalidResponse::EntityTag));
}

#[tokio::test]
async fn a_response_for_another_agent_or_an_older_one_is_rejected() {
    let agent = Agent::new();
    let mut other = Agent::new();
    assert!(matches!(agent.refusal_of(other.good()).await, InvalidResponse::OtherAgent { .. }));
    other.envelope.agent = agent.identity.agent_id;
    assert!(matches!(agent.refusal_of(other.good()).await, InvalidResponse::OtherInstallation { .. }));
    let older = agent.good().replace("5.70", "5.69");
    assert!(matches!(agent.refusal_of(older).await, InvalidResponse::Older { .. }));
    let older = answer("304 Not Modified", &[("brokkr-position", "4.900")], "");
    assert!(matches!(agent.refusal_of(older).await, InvalidResponse::Older { .. }));
}

#[tokio::test]
async fn a_response_with_an_implausible_position_is_rejected_and_not_remembered() {
    let agent = Agent::new();
    let (highest_epoch, highest_horizon) = (format!("{}.70", i64::MAX), format!("5.{}", u64::MAX));
    for (position, reason) in [(&highest_epoch, "epoch_in_future"), (&highest_horizon, "horizon_too_high")] {
        let refusal = agent.refusal_of(agent.good().replace("5.70", position)).await;
        let InvalidResponse::Implausible(implausible) = refusal else { panic!("{refusal:?}") };
        assert_eq!(implausible.reason(), reason);
    }
    // Neither does the next read show it.
    let stored = answer("200 OK", &[("brokkr-position", &highest_epoch)], "{}");
    let broker = Scripted::start(vec![stored, agent.good()]).await;
    let client = Client::builder(broker.url.clone())
        .credential(Credential::Agent(agent.identity.clone()))
        .build()
        .unwrap();
    let session = Session { count: 3, instance: InstanceId::generate() };
    let holds = Holds { stacks: Vec::new(), held: Vec::new() };
    let stored = client.put_holds(agent.identity.agent_id, session, &holds).await;
    assert!(stored.is_err(), "{stored:?}");
    let _ = client.agent("shop-1").await;
    assert_eq!(header(&broker.asked()[1], "brokkr-position"), None);
}

#[tokio::test]
async fn captive_portals_and_redirects_are_rejected() {
    let agent = Agent::new();
    let portal =
        answer("200 OK", &[("content-type", "text/html"), ("brokkr-position", "5.70")], "<html>Log in");
    assert!(matches!(agent.refusal_of(portal).await, InvalidResponse::WebPage { status: 200 }));
    let redirect = answer("302 Found", &[("location", "/elsewhere")], "");
    let (poll, asked) = agent.poll(vec![redirect, agent.good()]).await;
    assert!(
        matches!(poll, Err(ClientError::InvalidResponse { what: InvalidResponse::Redirect { .. }, .. })),
        "{poll:?}"
    );
    assert_eq!(asked.len(), 1, "the redirect was not followed");
}

#[tokio::test]
async fn problem_codes_for_agents_become_poll_results() {
    let agent = Agent::new();
    for (code, expected) in [
        (ErrorCode::BRK3001, "HoldsWanted"),
        (ErrorCode::BRK3002, "Behind { retry_after: Some(4s), spread: Some(90s) }"),
        (ErrorCode::BRK1004, "Superseded"),
        (ErrorCode::BRK1005, "Duplicated"),
        (ErrorCode::BRK1012, "NotIssued"),
    ] {
        let (poll, _) =
            agent.poll(vec![problem(code, &[("retry-after", "4"), ("brokkr-reconnect-spread", "90")])]).await;
        assert_eq!(format!("{:?}", poll.unwrap()), expected);
    }
}

#[tokio::test]
async fn an_agent_with_a_wrong_clock_retries_with_the_brokers_time() {
    let agent = Agent::new();
    let date = "Tue, 01 Jan 2030 00:00:00 GMT";
    let (poll, asked) = agent.poll(vec![problem(ErrorCode::BRK1001, &[("date", date)]), agent.good()]).await;
    assert!(matches!(poll, Ok(Poll::Changed { .. })), "{poll:?}");
    let assertion = header(&asked[1], "authorization").unwrap();
    let claims = jsonwebtoken::dangerous::insecure_decode::<serde_json::Value>(&assertion["Bearer ".len()..])
        .unwrap()
        .claims;
    let midnight: i64 = 1_893_456_000;
    assert!((claims["iat"].as_i64().unwrap() - midnight).abs() < 15, "{claims}");
    assert_eq!(claims["aud"], agent.identity.installation_id.to_string());
}

#[tokio::test]
async fn an_assertion_for_a_write_names_the_request_as_the_broker_serves_it() {
    let agent = Agent::new();
    let broker = Scripted::start(vec![answer(
        "200 OK",
        &[("content-type", "application/json"), ("brokkr-position", "5.70")],
        "{}",
    )])
    .await;
    // A proxy serves the broker below a path, which it removes.
    let url = broker.url.join("/tools/brokkr/").unwrap();
    let identity = agent.identity.clone();
    let client = Client::builder(url).credential(Credential::Agent(identity)).build().unwrap();
    let session = Session { count: 3, instance: InstanceId::generate() };
    let holds = Holds { stacks: Vec::new(), held: Vec::new() };
    for _ in 0..2 {
        client.put_holds(agent.identity.agent_id, session, &holds).await.unwrap();
    }
    let mut assertions = Vec::new();
    for request in broker.asked() {
        assert!(request.starts_with("PUT /tools/brokkr/api/v1/agents/"), "{request}");
        let assertion = header(&request, "authorization").unwrap()["Bearer ".len()..].to_owned();
        let claims = jsonwebtoken::dangerous::insecure_decode::<AssertionClaims>(&assertion).unwrap().claims;
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        let expected = BoundRequest {
            method: "PUT".to_owned(),
            path: format!("/api/v1/agents/{}/holds", agent.identity.agent_id),
            idempotency_key: header(&request, "idempotency-key"),
            session: Some(session.to_string()),
            body: Checksum::of(body.as_bytes()),
        };
        assert!(expected.idempotency_key.is_some());
        assert_eq!(claims.request, Some(expected));
        assertions.push(assertion);
    }
    assert_ne!(assertions[0], assertions[1], "each write has its own");
}

fn problem(code: ErrorCode, headers: &[(&str, &str)]) -> String {
    let body = serde_json::to_string(&Problem::new(code, "a detail")).unwrap();
    let headers: Vec<_> =
        [("content-type", "application/problem+json")].iter().chain(headers).copied().collect();
    answer(&format!("{} No", code.status()), &headers, &body)
}
