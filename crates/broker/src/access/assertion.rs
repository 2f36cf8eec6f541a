//! The signed assertions of agents: short-lived JWTs, verified with the key that the agent registered.
//!
//! Verifying costs a signature check, so a verified one is remembered until it expires. Whether the agent and
//! its key are still there is looked up in the index each time.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::ASSERTION_SECONDS;
use brokkr_api::{AgentId, InstallationId};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde::Deserialize;

use super::caller::AgentCaller;
use crate::index::Index;

/// How far an agent's clock may be off, in seconds.
const LEEWAY: i64 = 60;
/// Assertions remembered at once, at most.
const REMEMBERED: u64 = 200_000;

#[derive(Debug, thiserror::Error)]
pub enum BadAssertion {
    #[error("the assertion cannot be read")]
    Unreadable,
    #[error("no such agent")]
    UnknownAgent(AgentId),
    #[error("the assertion is not valid")]
    Invalid(#[source] jsonwebtoken::errors::Error),
    #[error("the assertion is valid for longer than {ASSERTION_SECONDS} seconds, or from the future")]
    Lifetime,
    #[error("the assertion names two agents")]
    Subject,
}

#[derive(Debug, Deserialize)]
struct Claims {
    iss: AgentId,
    sub: AgentId,
    iat: i64,
    exp: i64,
}

#[derive(Clone, Debug)]
struct Verified {
    agent: AgentId,
    public_key: Arc<[u8]>,
    expires: i64,
}

#[derive(Debug)]
pub struct Assertions {
    validation: Validation,
    verified: moka::future::Cache<Checksum, Verified>,
}

impl Assertions {
    #[must_use]
    pub fn new(installation: InstallationId) -> Self {
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_audience(&[installation.to_string()]);
        validation.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        validation.leeway = LEEWAY.unsigned_abs();
        let verified = moka::future::Cache::builder()
            .max_capacity(REMEMBERED)
            .time_to_live(Duration::from_secs(ASSERTION_SECONDS.unsigned_abs()))
            .build();
        Self { validation, verified }
    }

    /// Who signed it, if everything about it is right.
    pub async fn verify(&self, index: &Index, token: &str, now: i64) -> Result<AgentCaller, BadAssertion> {
        let digest = Checksum::of(token.as_bytes());
        if let Some(known) = self.verified.get(&digest).await
            && known.expires + LEEWAY > now
            && index
                .picture()
                .agent(known.agent)
                .is_some_and(|facts| facts.public_key[..] == known.public_key[..])
        {
            return Ok(AgentCaller { id: known.agent, public_key: known.public_key });
        }
        let claimed = unverified_subject(token).ok_or(BadAssertion::Unreadable)?;
        let public_key: Arc<[u8]> = index
            .picture()
            .agent(claimed)
            .map(|facts| facts.public_key.clone().into())
            .ok_or(BadAssertion::UnknownAgent(claimed))?;
        let claims = decode::<Claims>(token, &DecodingKey::from_ed_der(&public_key), &self.validation)
            .map_err(BadAssertion::Invalid)?
            .claims;
        if claims.iss != claimed || claims.sub != claimed {
            return Err(BadAssertion::Subject);
        }
        // The figures are the caller's: they may be anything.
        let lifetime = claims.exp.checked_sub(claims.iat);
        if lifetime.is_none_or(|seconds| seconds > ASSERTION_SECONDS)
            || claims.iat > now + LEEWAY
            || claims.exp > now + ASSERTION_SECONDS + LEEWAY
        {
            return Err(BadAssertion::Lifetime);
        }
        let verified = Verified { agent: claimed, public_key: Arc::clone(&public_key), expires: claims.exp };
        self.verified.insert(digest, verified).await;
        Ok(AgentCaller { id: claimed, public_key })
    }
}

/// Whose key to verify with. Believed only once the signature fits.
fn unverified_subject(token: &str) -> Option<AgentId> {
    #[derive(Deserialize)]
    struct Subject {
        sub: AgentId,
    }
    let payload = token.split('.').nth(1)?;
    let bytes = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice::<Subject>(&bytes).ok().map(|claims| claims.sub)
}
