//! The upgrade that an agent is offered, and the capability that makes the broker offer it.

use brokkr_api::upgrades::UpgradeOffer;
use brokkr_api::{AgentId, InstallationId, UpgradeId};
use brokkr_client::{AgentIdentity, AgentKey, Client, ClientError, Credential};

use crate::scripted::{Scripted, answer, header};

const JSON: (&str, &str) = ("content-type", "application/json");
const PROBLEM: (&str, &str) = ("content-type", "application/problem+json");

#[tokio::test]
async fn an_agent_without_an_offer_is_no_error() {
    let offer = r#"{"id":7,"image":"a@sha256:00","version":"0.2.0"}"#;
    let not_found =
        r#"{"type":"about:blank","title":"Not found","status":404,"detail":"x","next":"x","code":"BRK2001"}"#;
    let refused = r#"{"type":"about:blank","title":"Unauthenticated","status":401,"detail":"x","next":"x","code":"BRK1001"}"#;
    let broker = Scripted::start(vec![
        answer("204 No Content", &[], ""),
        answer("404 Not Found", &[PROBLEM], not_found),
        answer("200 OK", &[JSON], offer),
        answer("401 Unauthorized", &[PROBLEM], refused),
    ])
    .await;
    let client = Client::builder(broker.url.clone()).build().unwrap();
    let agent = AgentId::generate();
    assert_eq!(client.upgrade_offer(agent).await.unwrap(), None);
    assert_eq!(client.upgrade_offer(agent).await.unwrap(), None);
    let expected =
        UpgradeOffer { id: UpgradeId(7), image: "a@sha256:00".to_owned(), version: "0.2.0".to_owned() };
    assert_eq!(client.upgrade_offer(agent).await.unwrap(), Some(expected));
    let error = client.upgrade_offer(agent).await.unwrap_err();
    assert!(matches!(error, ClientError::Problem { .. }), "{error}");
    assert!(broker.asked()[0].starts_with(&format!("GET /api/v1/agents/{agent}/upgrade ")));
}

#[tokio::test]
async fn only_an_agent_that_may_upgrade_itself_announces_it() {
    let broker = Scripted::start(vec![answer("204 No Content", &[], "")]).await;
    let identity = AgentIdentity {
        agent_id: AgentId::generate(),
        installation_id: InstallationId::generate(),
        key: AgentKey::generate().unwrap(),
    };
    let agent = identity.agent_id;
    let client = Client::builder(broker.url.clone()).credential(Credential::Agent(identity)).build().unwrap();
    let clone = client.clone();
    for allowed in [false, true, false] {
        client.announce_upgrades(allowed);
        clone.upgrade_offer(agent).await.unwrap();
    }
    let announced: Vec<bool> = broker
        .asked()
        .iter()
        .map(|request| {
            header(request, "brokkr-capabilities").unwrap().split(',').any(|name| name == "upgrade")
        })
        .collect();
    assert_eq!(announced, [false, true, false]);
}
