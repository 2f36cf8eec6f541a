//! An agent proves that it has the keys that it registers, and a replayed proof changes nothing.

use anyhow::{Context as _, Result};
use brokkr_api::agents::{RegisterAgent, RegisteredAgent, RotateKey, RotatedKey};
use brokkr_api::protocol::header;
use brokkr_api::{AgentId, ErrorCode, InstallationId};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::harness::{Agent, Harness, Key, Signer, read, refused, register};

/// Returns the current and the previous key in the database.
async fn keys(harness: &Harness, agent: &Agent) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let mut connection = harness.database.connect().await?;
    let row = sqlx::query_as("SELECT public_key, old_public_key FROM agents WHERE id = $1").bind(agent.id.0);
    Ok(row.fetch_one(&mut connection).await?)
}

/// Returns a request of the agent that can be sent again byte for byte.
fn rotation(agent: &Agent, key: &str, change: &RotateKey) -> Result<RequestBuilder> {
    let caller = agent.caller();
    let request = caller.request(Method::POST, &agent.path("keys")).header(header::IDEMPOTENCY_KEY, key);
    caller.signed(request.json(change))
}

async fn again(request: &RequestBuilder) -> Result<reqwest::Response> {
    Ok(request.try_clone().context("it has bytes")?.send().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_change_without_both_proofs_for_this_agent_is_refused() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let (signer, next) = (agent.signer(), Key::generate()?);
    let before = keys(&harness, &agent).await?;
    let good = signer.key_change(&next)?;
    let for_another_agent = Signer { agent: AgentId::generate(), ..signer.clone() }.key_change(&next)?;
    let elsewhere =
        Signer { installation: InstallationId::generate(), ..signer.clone() }.key_change(&next)?;
    // Someone who can sign requests of this agent, but does not have its current key.
    let without_the_old_key = Signer { key: Key::generate()?, ..signer.clone() }.key_change(&next)?;
    let old_signature = without_the_old_key.old_signature.clone();
    // Someone who wants to register the key of somebody else.
    let signature = signer.key_change(&Key::generate()?)?.signature;
    let bad = [
        (for_another_agent, ErrorCode::BRK1011),
        (elsewhere, ErrorCode::BRK1011),
        (RotateKey { signature, ..good.clone() }, ErrorCode::BRK1011),
        (RotateKey { signature: String::new(), ..good.clone() }, ErrorCode::BRK1011),
        (RotateKey { old_signature, ..good.clone() }, ErrorCode::BRK1011),
        // Both signatures are valid, but the old key is not the agent's.
        (without_the_old_key, ErrorCode::BRK1009),
    ];
    for (change, code) in bad {
        let response = agent.caller().send(Method::POST, &agent.path("keys"), &json!(change)).await?;
        assert_eq!(refused(response).await?, code, "{change:?}");
    }
    for field in ["signature", "old_signature", "old_public_key"] {
        let mut body = json!(good);
        body.as_object_mut().context("an object")?.remove(field);
        let response = agent.caller().send(Method::POST, &agent.path("keys"), &body).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2003, "without {field}");
    }
    assert_eq!(keys(&harness, &agent).await?, before);
    agent.caller().send(Method::POST, &agent.path("keys"), &json!(good)).await?.error_for_status()?;
    assert_eq!(keys(&harness, &agent).await?.0, next.bytes()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_key_change_changes_nothing() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let (second, third) = (Key::generate()?, Key::generate()?);
    let change = agent.signer().key_change(&second)?;
    let captured = rotation(&agent, "k-1", &change)?;
    let first: RotatedKey = read(again(&captured).await?).await?;
    let after = keys(&harness, &agent).await?;
    assert_eq!(read::<RotatedKey>(again(&captured).await?).await?, first, "the first result");
    assert_eq!(keys(&harness, &agent).await?, after);

    // The same proofs in another request of the agent, while the previous key is still valid.
    let previous = rotation(&agent, "k-2", &change)?;
    assert_eq!(read::<RotatedKey>(again(&previous).await?).await?, first);
    assert_eq!(keys(&harness, &agent).await?, after);

    // The agent changes its key again, so that the key that the captured change replaces is not even the previous one.
    agent.key = second;
    let next = agent.signer().key_change(&third)?;
    agent.caller().send(Method::POST, &agent.path("keys"), &json!(next)).await?.error_for_status()?;
    // Waits until the index has the newest key.
    harness.admin.get("whoami").await?.error_for_status()?;
    let newest = keys(&harness, &agent).await?;
    assert_eq!(newest.0, third.bytes()?);
    // The captured requests are signed with a key that is no longer valid.
    for request in [&captured, &previous] {
        assert_eq!(refused(again(request).await?).await?, ErrorCode::BRK1001);
    }
    // With a valid credential, which the previous key still makes, the captured proofs are of no use either.
    assert_eq!(refused(again(&rotation(&agent, "k-4", &change)?).await?).await?, ErrorCode::BRK1009);
    let repeated: RotatedKey = read(again(&rotation(&agent, "k-5", &next)?).await?).await?;
    assert_eq!(repeated.public_key, third.public, "the last change can be repeated");
    assert_eq!(keys(&harness, &agent).await?, newest);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_without_the_proof_of_its_key_is_refused_and_does_not_use_the_token() -> Result<()> {
    let harness = Harness::open().await?;
    let token = harness.join_token("shop-1", json!({})).await?.token;
    let another = harness.join_token("shop-2", json!({})).await?.token;
    let (key, other) = (Key::generate()?, Key::generate()?);
    let good = key.registration(&token)?;
    let public = harness.without_credential();
    let bad = [
        // The key of somebody else.
        RegisterAgent { public_key: other.public.clone(), ..good.clone() },
        RegisterAgent { signature: other.registration(&token)?.signature, ..good.clone() },
        // The proof was for another token.
        RegisterAgent { signature: key.registration(&another)?.signature, ..good.clone() },
        RegisterAgent { signature: String::new(), ..good.clone() },
    ];
    for registration in bad {
        let response = public.send(Method::POST, "agents/register", &json!(registration)).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK1011, "{registration:?}");
    }
    let registered: RegisteredAgent = read(register(&public, &token, &key).await?).await?;
    assert_eq!(registered.name.as_str(), "shop-1");
    Ok(())
}
