//! Row 47: a compromised broker serves altered, truncated or other agents' responses. Responses have no
//! signatures, so clients reject them for what they contain, and keep their state.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::Position;
use brokkr_client::{Client, Credential, Poll};
use brokkr_testkit::FaultProxy;
use brokkr_testkit::proxy::{Action, Matcher};
use bytes::Bytes;

use crate::broker_pair::BrokerPair;
use crate::clients::{ChangeRequest, object};

#[tokio::test(flavor = "multi_thread")]
async fn row_47_altered_truncated_older_and_foreign_responses_are_rejected() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    let pem = pair.authority.pem();
    let liar = FaultProxy::in_front_of(&pair.replicas[0].url(), &pem, &pair.authority).await?;
    let (agent, other) = (&pair.agents[0], &pair.agents[1]);
    let ask = agent.ask(Position::default(), None, Duration::ZERO);
    let client = Client::builder(liar.url().parse()?)
        .ca_pem(pem)
        .credential(Credential::Agent(agent.identity.clone()))
        .build()?;
    let Poll::Changed { position, .. } = client.target_state(agent.id, &ask).await? else {
        anyhow::bail!("a correct response must be accepted")
    };
    let foreign = Bytes::from(answer_to(&pair, other.id).await?);
    // The same agent's response before the submission of another version.
    let older = Bytes::from(answer_to(&pair, agent.id).await?);
    object(&pair.caller.send_until_known(0, ChangeRequest::submit("web", 100)).await)?;
    let endless = Bytes::from(vec![b' '; 70 * 1024 * 1024]);
    let lies = [
        ("altered", Action::change_body(|_, body| flipped(&body))),
        ("empty", Action::change_body(|_, _| Bytes::from_static(b"{}"))),
        ("another agent's", Action::change_body(move |_, _| foreign.clone())),
        ("older", Action::change_body(move |_, _| older.clone())),
        ("endless", Action::change_body(move |_, _| endless.clone())),
        ("cut off", Action::Truncate),
    ];
    for (what, lie) in lies {
        let rule = liar.when(Matcher::path("target-state"), lie);
        let response = client.target_state(agent.id, &ask).await;
        ensure!(response.is_err(), "S2, S8: an answer that is {what} was accepted: {response:?}");
        ensure!(rule.hits() > 0, "the answer was not {what}: {response:?}");
        rule.release();
        let truth = client.target_state(agent.id, &ask).await;
        ensure!(matches!(truth, Ok(Poll::Changed { .. })), "after an answer that is {what}: {truth:?}");
    }
    liar.heal();
    pair.wait_for_progress(3).await?;
    // An agent that makes up a position gets nothing, and the others are served as before.
    let future = Position { horizon: position.position.horizon + 1_000_000, ..position.position };
    let response = client.target_state(agent.id, &agent.ask(future, None, Duration::ZERO)).await;
    ensure!(matches!(response, Ok(Poll::NotIssued)), "S2: {response:?}");
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

async fn answer_to(pair: &BrokerPair, agent: brokkr_api::AgentId) -> Result<Vec<u8>> {
    let request = pair.caller.request(0, reqwest::Method::GET, &format!("agents/{agent}/target-state"));
    let answer = request.header("accept", brokkr_api::protocol::ENVELOPE_MEDIA_TYPE).send().await?;
    Ok(answer.bytes().await.context("the answer to an agent")?.to_vec())
}

/// Changes one digit of a sequence id or checksum.
fn flipped(body: &Bytes) -> Bytes {
    let mut bytes = body.to_vec();
    if let Some(digit) = bytes.iter_mut().rev().find(|byte| byte.is_ascii_digit()) {
        *digit = if *digit == b'1' { b'2' } else { b'1' };
    }
    Bytes::from(bytes)
}
