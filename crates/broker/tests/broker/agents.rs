//! Joining and sessions.

use std::time::Duration;

use anyhow::Result;
use brokkr_api::agents::{Agent as ApiAgent, RegisteredAgent, SessionVerdict};
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::{ErrorCode, InstanceId};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Harness, Key, read, refused, register};

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_is_used_once_and_the_same_key_gets_the_same_answer() -> Result<()> {
    let harness = Harness::open().await?;
    let token = harness.join_token("shop-1", json!({ "env": "prod" })).await?.token;
    let (mine, thief) = (Key::generate()?, Key::generate()?);
    let anybody = harness.without_credential();
    let first: RegisteredAgent = read(register(&anybody, &token, &mine).await?).await?;
    let again: RegisteredAgent = read(register(&anybody, &token, &mine).await?).await?;
    assert_eq!(first, again, "a lost response does no harm");
    assert_eq!(refused(register(&anybody, &token, &thief).await?).await?, ErrorCode::BRK1003);
    let damaged = format!("{}x", &token[..token.len() - 1]);
    assert_eq!(refused(register(&anybody, &damaged, &mine).await?).await?, ErrorCode::BRK1003);

    let agent: ApiAgent = harness.admin.get_json("agents/shop-1").await?;
    assert_eq!((agent.id, agent.labels["env"].as_str()), (first.agent_id, "prod"));
    let taken = harness.admin.send(Method::POST, "join-tokens", &json!({ "agent_name": "shop-1" })).await?;
    assert_eq!(refused(taken).await?, ErrorCode::BRK2002);

    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE join_tokens SET expires_at = now()").execute(&mut connection).await?;
    assert_eq!(refused(register(&anybody, &token, &mine).await?).await?, ErrorCode::BRK1003);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_highest_session_wins_and_equal_ones_are_refused() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    assert_eq!(agent.open_session(1).await?, SessionVerdict::Serves, "the same process again");
    let old = agent.session;
    let etag = agent.poll().await?.etag;

    // A newer process starts while the old one waits in a long poll: the old one is refused at once.
    let waiting = agent.poll_request().header("if-none-match", &etag).header("prefer", "wait=20").send();
    let newer = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let body = json!({ "count": 2, "instance": InstanceId::generate() });
        agent.caller().send(Method::POST, &agent.path("session"), &body).await
    };
    let (old_poll, opened) = tokio::join!(waiting, newer);
    assert_eq!(opened?.status(), StatusCode::OK);
    assert_eq!(refused(old_poll?).await?, ErrorCode::BRK1004);

    agent.session = old;
    assert_eq!(agent.open_session(1).await?, SessionVerdict::Superseded);
    let holds = agent.caller().request(Method::PUT, &agent.path("holds")).json(&json!({ "stacks": [] }));
    let holds = agent.caller().write(holds.header(header::SESSION, agent.session.to_string())).await?;
    assert_eq!(refused(holds).await?, ErrorCode::BRK1004);

    agent.session.instance = InstanceId::generate();
    assert_eq!(agent.open_session(2).await?, SessionVerdict::Duplicated);
    assert_eq!(agent.poll().await?.code()?, ErrorCode::BRK1005);
    let seen: ApiAgent = harness.admin.get_json("agents/shop-1").await?;
    assert!(seen.session_duplicated);
    assert_eq!(agent.open_session(3).await?, SessionVerdict::Serves);
    assert_eq!(agent.poll().await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_seen_when_it_polls_and_lists_are_paged() -> Result<()> {
    let harness = Harness::open().await?;
    let first = harness.agent("shop-1", json!({})).await?;
    for count in 2..=5 {
        harness.agent(&format!("shop-{count}"), json!({})).await?;
    }
    first.poll().await?;
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let page: Page<ApiAgent> = harness.admin.get_json(&format!("agents?limit=2{after}")).await?;
        assert!(page.items.len() <= 2);
        names.extend(page.items.iter().map(|agent| (agent.name.to_string(), agent.last_seen_at.is_some())));
        let Some(next) = page.next else { break };
        after = format!("&after={next}");
    }
    let wanted: Vec<_> = (1..=5).map(|count| (format!("shop-{count}"), count == 1)).collect();
    assert_eq!(names, wanted);

    // Presence in memory is stored when the broker stops.
    harness.server.stop().await;
    let mut connection = harness.database.connect().await?;
    let stored: Vec<String> = sqlx::query_scalar("SELECT name FROM agents WHERE last_seen_at IS NOT NULL")
        .fetch_all(&mut connection)
        .await?;
    assert_eq!(stored, ["shop-1"]);
    Ok(())
}
