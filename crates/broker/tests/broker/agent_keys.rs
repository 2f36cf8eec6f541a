//! Agents change their keys, are locked out, and come back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::agents::{Agent, RegisteredAgent, RotateKey, RotatedKey, SessionVerdict};
use brokkr_api::protocol::{Capabilities, header};
use brokkr_api::tokens::JoinToken;
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use crate::harness::{self, Caller, Harness, Key, YAML, polled, read, refused, register};

async fn rotate(caller: &Caller, agent: &harness::Agent, change: &RotateKey) -> Result<reqwest::Response> {
    caller.send(Method::POST, &agent.path("keys"), &json!(change)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_valid_at_once_and_the_previous_one_for_a_while() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let old = agent.caller();
    let etag = agent.poll().await?.etag;
    let (old_signer, key) = (agent.signer(), Key::generate()?);
    let wanted = old_signer.key_change(&key)?;
    let waiting = agent.wait(&etag, 20);
    let change = async {
        eventually(Duration::from_secs(10), "the poll to wait", async || {
            harness.server.broker.index.waiting() == 1
        })
        .await?;
        read::<RotatedKey>(rotate(&old, &agent, &wanted).await?).await
    };
    let submit = async {
        let first = change.await?;
        harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
        harness.submit("web", YAML).await?;
        anyhow::Ok(first)
    };
    let (polled, first) = tokio::join!(waiting, submit);
    let first = first?;
    assert_eq!(polled?.envelope()?.stacks.len(), 1, "a waiting poll is not interrupted");
    assert!(first.old_key_until.is_some());

    // The response was lost: the same request, signed with the old key, returns the same result.
    assert_eq!(read::<RotatedKey>(rotate(&old, &agent, &wanted).await?).await?, first);
    agent.key = key;
    for address in [harness.server.address, second.address] {
        eventually(Duration::from_secs(10), "the new key to be known everywhere", async || {
            let answer = agent.at(address).get(&agent.path("targets")).await;
            answer.is_ok_and(|response| response.status().is_success())
        })
        .await?;
    }
    assert!(old.get(&agent.path("targets")).await?.status().is_success(), "the old key is still valid");
    assert_eq!(read::<RotatedKey>(rotate(&agent.caller(), &agent, &wanted).await?).await?, first);

    // The old key cannot replace the new one.
    let other = Key::generate()?;
    let stolen = old_signer.key_change(&other)?;
    assert_eq!(refused(rotate(&old, &agent, &stolen).await?).await?, ErrorCode::BRK1009);
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE agents SET old_key_until = now()").execute(&mut connection).await?;
    let next = agent.signer().key_change(&other)?;
    rotate(&agent.caller(), &agent, &next).await?.error_for_status()?;
    eventually(Duration::from_secs(10), "the oldest key to be refused", async || {
        old.get(&agent.path("targets")).await.is_ok_and(|response| response.status() == 401)
    })
    .await?;
    second.stop().await;
    Ok(())
}

/// The broker uses a new capability only with an agent that announced it.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_did_not_announce_key_rotation_is_not_asked_for_a_new_key() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.admin.send(Method::POST, "agents/shop-1/rotation", &json!({})).await?.error_for_status()?;
    eventually(Duration::from_secs(10), "the agent, which announced key rotation, to be asked", async || {
        agent.poll().await.is_ok_and(|polled| polled.headers.get(header::WANTS).is_some())
    })
    .await?;
    for announced in ["", "time-travel", "reason-details"] {
        let name = http::HeaderName::from_static(header::CAPABILITIES);
        let only = http::HeaderMap::from_iter([(name, http::HeaderValue::from_static(announced))]);
        let request = agent.poll_request().headers(only);
        let polled = harness::polled(request).await?;
        assert_eq!(polled.headers.get(header::WANTS), None, "{announced}");
        // The broker announces its own capabilities in turn.
        assert_eq!(polled.headers[header::CAPABILITIES], Capabilities::own().to_string().as_str());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_agent_gets_a_key_request_at_once_and_until_it_has_a_new_key() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let etag = agent.poll().await?.etag;
    let ask = async || -> Result<Agent> {
        read(harness.admin.send(Method::POST, "agents/shop-1/rotation", &json!({})).await?).await
    };
    let asking = async {
        eventually(Duration::from_secs(10), "the poll to wait", async || {
            harness.server.broker.index.waiting() == 1
        })
        .await?;
        ask().await
    };
    let started = Instant::now();
    let (polled, asked) = tokio::join!(agent.wait(&etag, 60), asking);
    let (polled, asked) = (polled?, asked?);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(polled.headers[header::WANTS], "key");
    assert_eq!(
        ask().await?.rotation_asked_at,
        asked.rotation_asked_at,
        "the time of the first request is kept"
    );
    eventually(Duration::from_secs(10), "every replica to request it", async || {
        let request = agent.poll_request_at(second.address).header("if-none-match", &etag);
        harness::polled(request).await.is_ok_and(|polled| polled.headers.get(header::WANTS).is_some())
    })
    .await?;

    let key = Key::generate()?;
    rotate(&agent.caller(), &agent, &agent.signer().key_change(&key)?).await?.error_for_status()?;
    agent.key = key;
    let shown: Agent = harness.admin.get_json("agents/shop-1").await?;
    assert_eq!(shown.rotation_asked_at, None);
    assert!(shown.key_since > asked.key_since, "{shown:?}");
    eventually(Duration::from_secs(10), "the agent not to be asked any more", async || {
        agent.poll().await.is_ok_and(|polled| polled.headers.get(header::WANTS).is_none())
    })
    .await?;

    harness.admin.request(Method::DELETE, "agents/shop-1/keys").send().await?.error_for_status()?;
    assert_eq!(ask().await?.rotation_asked_at, None, "an agent without a key is not asked for a new one");
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_can_change_only_its_own_key() -> Result<()> {
    let harness = Harness::open().await?;
    let (agent, other) =
        (harness.agent("shop-1", json!({})).await?, harness.agent("shop-2", json!({})).await?);
    let change = agent.signer().key_change(&Key::generate()?)?;
    assert_eq!(refused(rotate(&agent.caller(), &other, &change).await?).await?, ErrorCode::BRK2001);
    assert_eq!(refused(rotate(&harness.admin, &other, &change).await?).await?, ErrorCode::BRK1002);
    for (name, value) in
        [("agent_id", json!(other.id)), ("sub", json!(other.id)), ("public_key", json!("short"))]
    {
        let mut body = json!(change);
        body[name] = value;
        let response = agent.caller().send(Method::POST, &agent.path("keys"), &body).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2003, "{body}");
    }
    for agent in [&agent, &other] {
        assert!(agent.caller().get(&agent.path("targets")).await?.status().is_success());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_agent_is_refused_by_every_replica_within_a_second_also_where_it_waits() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let etag = agent.poll().await?.etag;
    eventually(Duration::from_secs(10), "the second replica to know", async || {
        polled(agent.poll_request_at(second.address)).await.is_ok_and(|polled| polled.etag == etag)
    })
    .await?;
    let wait_at = |address| {
        let request = agent.poll_request_at(address).header("if-none-match", &etag);
        polled(request.header("prefer", "wait=30"))
    };
    let bystander = harness.writing_bystander();
    let revoke = async {
        eventually(Duration::from_secs(10), "both polls to wait", async || {
            harness.server.broker.index.waiting() == 1 && second.broker.index.waiting() == 1
        })
        .await?;
        let revoked = harness.admin.request(Method::DELETE, "agents/shop-1/keys").send().await?;
        anyhow::Ok((read::<Agent>(revoked).await?, Instant::now()))
    };
    let (here, there, revoked) =
        tokio::join!(wait_at(harness.server.address), wait_at(second.address), revoke);
    let (revoked, at) = revoked?;
    assert!(revoked.revoked_at.is_some());
    let (took, limit) = (at.elapsed(), bystander.allows(Duration::from_secs(1)));
    assert!(took < limit, "{took:?}, allowed {limit:?}");
    for polled in [here?, there?] {
        assert_eq!(polled.code()?, ErrorCode::BRK1001);
    }
    for address in [harness.server.address, second.address] {
        let caller = agent.at(address);
        for path in [agent.path("targets"), format!("deployment-objects/{}", object.sequence_id)] {
            assert_eq!(refused(caller.get(&path).await?).await?, ErrorCode::BRK1001, "{path}");
        }
        let change = agent.signer().key_change(&Key::generate()?)?;
        assert_eq!(refused(rotate(&caller, &agent, &change).await?).await?, ErrorCode::BRK1001);
    }
    // Revoking again changes nothing.
    let again = harness.admin.request(Method::DELETE, "agents/shop-1/keys").send().await?;
    assert_eq!(read::<Agent>(again).await?.revoked_at, revoked.revoked_at);
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_agent_rejoins_with_a_join_token_made_for_it() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "dev" })).await?;
    agent.open_session(7).await?;
    harness.stack("web", json!({ "selectors": ["env=dev"] })).await?;
    harness.submit("web", YAML).await?;
    let ask = async || -> Result<JoinToken> {
        read(harness.admin.send(Method::POST, "agents/shop-1/join-tokens", &json!({})).await?).await
    };
    // A join token that was created before the revocation is revoked, too.
    let before = ask().await?;
    harness.admin.request(Method::DELETE, "agents/shop-1/keys").send().await?.error_for_status()?;
    let stolen = register(&harness.without_credential(), &before.token, &Key::generate()?).await?;
    assert_eq!(refused(stolen).await?, ErrorCode::BRK1003);

    let token = ask().await?;
    let old = agent.caller();
    let key = Key::generate()?;
    let joined: RegisteredAgent =
        read(register(&harness.without_credential(), &token.token, &key).await?).await?;
    assert_eq!(joined.agent_id, agent.id);
    let again: RegisteredAgent =
        read(register(&harness.without_credential(), &token.token, &key).await?).await?;
    assert_eq!(again, joined, "a lost response does no harm");
    let other = register(&harness.without_credential(), &token.token, &Key::generate()?).await?;
    assert_eq!(refused(other).await?, ErrorCode::BRK1003);

    agent.key = key;
    assert_eq!(
        agent.open_session(1).await?,
        SessionVerdict::Serves,
        "a new installation counts sessions from one"
    );
    assert_eq!(agent.poll().await?.envelope()?.stacks.len(), 1, "with its labels and targets");
    assert_eq!(refused(old.get(&agent.path("targets")).await?).await?, ErrorCode::BRK1001);
    let shown: Agent = harness.admin.get_json("agents/shop-1").await?;
    assert_eq!(shown.revoked_at, None);
    let none = harness.admin.send(Method::POST, "agents/nobody/join-tokens", &json!({})).await?;
    assert_eq!(refused(none).await.context("no such agent")?, ErrorCode::BRK2001);
    Ok(())
}
