//! A write without a response is sent again with the same idempotency key; a refused one is not.

use std::time::Duration;

use crate::scripted::{Scripted, answer, header};
use brokkr_api::tokens::CreateJoinToken;
use brokkr_api::{ErrorCode, Problem};
use brokkr_client::{Client, ClientError, Credential, RetryPolicy};

const TOKEN: &str = r#"{"id":"0190b5a4-0000-7000-8000-000000000001","token":"brkj_x","agent_name":"one","labels":{},"expires_at":"2030-01-01T00:00:00Z"}"#;

fn client(broker: &Scripted) -> Client {
    Client::builder(broker.url.clone())
        .credential(Credential::Token("brk_very-secret".to_owned().into()))
        .retry(RetryPolicy::up_to(Duration::from_secs(20)))
        .build()
        .unwrap()
}

fn join_token() -> CreateJoinToken {
    CreateJoinToken { agent_name: "one".parse().unwrap(), labels: Default::default(), ttl_seconds: None }
}

#[tokio::test]
async fn a_write_without_a_response_is_sent_again_with_the_same_key() {
    let busy = answer("503 Service Unavailable", &[("content-type", "text/html")], "<html>busy");
    let good = answer("201 Created", &[("content-type", "application/json")], TOKEN);
    let broker = Scripted::start(vec![String::new(), busy, good]).await;
    let token = client(&broker).create_join_token(&join_token()).await.unwrap();
    assert_eq!(token.agent_name.as_str(), "one");
    let asked = broker.asked();
    let keys: Vec<_> = asked.iter().map(|request| header(request, "idempotency-key").unwrap()).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn a_refused_write_is_not_retried_and_the_error_contains_no_secret() {
    let body = serde_json::to_string(&Problem::new(ErrorCode::BRK1002, "viewers create no tokens")).unwrap();
    let broker =
        Scripted::start(vec![answer("403 No", &[("content-type", "application/problem+json")], &body)]).await;
    let error = client(&broker).create_join_token(&join_token()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BRK1002));
    assert!(!format!("{error} {error:?}").contains("very-secret"));
    assert_eq!(broker.asked().len(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_unreachable_with_a_reason() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::builder(url.parse().unwrap()).build().unwrap();
    let error = client.whoami().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }) && error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn the_detail_of_an_unknown_code_of_a_newer_broker_is_shown() {
    let body = r#"{"type":"x","title":"new","status":409,"detail":"the moon is full","code":"BRK7777","next":"wait"}"#;
    let broker =
        Scripted::start(vec![answer("409 No", &[("content-type", "application/problem+json")], body)]).await;
    let error = client(&broker).whoami().await.unwrap_err();
    assert!(error.to_string().contains("the moon is full (BRK7777)"), "{error}");
}
