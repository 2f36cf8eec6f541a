//! The agent's assertions: short-lived JWTs, signed with its key and sent with each request.
//!
//! The broker caches verified assertions for reading, so one is used until shortly before it expires. Every other
//! request gets an assertion that is valid for this request only.

use std::sync::{Mutex, MutexGuard, PoisonError};

use brokkr_api::assertion::{AssertionClaims, BoundRequest, READ_ASSERTION_SECONDS};
use brokkr_api::{AgentId, InstallationId};
use jsonwebtoken::{Algorithm, EncodingKey, Header};

use crate::credential::AgentIdentity;
use crate::error::{ClientError, Result};
use crate::key::AgentKey;

/// A new assertion is created when the old one is valid for less than this.
const RENEW_SECONDS: i64 = 60;
/// Assertions are backdated by this, because clocks may differ by less than [`crate::clock`] notices.
const BACKDATE_SECONDS: i64 = 5;

/// Creates assertions and caches the last one for reading.
pub(crate) struct Signer {
    agent_id: AgentId,
    installation_id: InstallationId,
    state: Mutex<SigningState>,
}

/// The key, and the last assertion for reading with its expiry.
struct SigningState {
    key: EncodingKey,
    last: Option<(String, i64)>,
}

impl Signer {
    pub(crate) fn new(identity: &AgentIdentity) -> Self {
        Self {
            agent_id: identity.agent_id,
            installation_id: identity.installation_id,
            state: Mutex::new(SigningState { key: identity.key.signing_key(), last: None }),
        }
    }

    /// Signs with another key from now on.
    pub(crate) fn sign_with(&self, key: &AgentKey) {
        *self.state() = SigningState { key: key.signing_key(), last: None };
    }

    fn state(&self) -> MutexGuard<'_, SigningState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an assertion for reading that is valid at `now`, in seconds of the broker's clock.
    pub(crate) fn read_assertion(&self, now: i64) -> Result<String> {
        let mut state = self.state();
        if let Some((assertion, expires)) = state.last.as_ref() {
            let left = expires - now;
            // More than the full lifetime left means that the clock was moved back: the broker would refuse
            // this assertion.
            if (RENEW_SECONDS..=READ_ASSERTION_SECONDS).contains(&left) {
                return Ok(assertion.clone());
            }
        }
        let claims = self.claims(now, None);
        let assertion = sign(&claims, &state.key)?;
        state.last = Some((assertion.clone(), claims.exp));
        Ok(assertion)
    }

    /// Returns an assertion that is valid at `now` for this request only.
    pub(crate) fn write_assertion(&self, now: i64, request: BoundRequest) -> Result<String> {
        sign(&self.claims(now, Some(request)), &self.state().key)
    }

    fn claims(&self, now: i64, request: Option<BoundRequest>) -> AssertionClaims {
        AssertionClaims::new(self.agent_id, self.installation_id, now - BACKDATE_SECONDS, request)
    }
}

fn sign(claims: &AssertionClaims, key: &EncodingKey) -> Result<String> {
    jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), claims, key)
        .map_err(|_| ClientError::Unsendable { what: "the agent's key cannot sign" })
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", self.agent_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use brokkr_api::assertion::WRITE_ASSERTION_SECONDS;
    use brokkr_api::ids::Checksum;
    use jsonwebtoken::{DecodingKey, Validation};

    fn identity() -> AgentIdentity {
        AgentIdentity {
            agent_id: AgentId::generate(),
            installation_id: InstallationId::generate(),
            key: AgentKey::generate().unwrap(),
        }
    }

    #[test]
    fn the_public_half_verifies_an_assertion_for_this_installation_only() {
        let identity = identity();
        let now = jiff::Timestamp::now().as_second();
        let assertion = Signer::new(&identity).read_assertion(now).unwrap();
        let public = URL_SAFE_NO_PAD.decode(identity.key.public_key_base64url()).unwrap();
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_audience(&[identity.installation_id]);
        validation.set_issuer(&[identity.agent_id]);
        let key = DecodingKey::from_ed_der(&public);
        let claims = jsonwebtoken::decode::<serde_json::Value>(&assertion, &key, &validation).unwrap().claims;
        assert_eq!(claims["sub"], identity.agent_id.to_string());
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), READ_ASSERTION_SECONDS);
        assert_eq!(claims.get("request"), None);
        validation.set_audience(&[InstallationId::generate()]);
        assert!(jsonwebtoken::decode::<serde_json::Value>(&assertion, &key, &validation).is_err());
    }

    #[test]
    fn an_assertion_for_writing_names_its_request_and_is_not_used_for_reading() {
        let signer = Signer::new(&identity());
        let reading = signer.read_assertion(10_000).unwrap();
        let request = BoundRequest {
            method: "POST".to_owned(),
            path: "/api/v1/agents/a/reports".to_owned(),
            idempotency_key: Some("k".to_owned()),
            session: None,
            body: Checksum::of(b"{}"),
        };
        let writing = signer.write_assertion(10_000, request.clone()).unwrap();
        let claims = jsonwebtoken::dangerous::insecure_decode::<AssertionClaims>(&writing).unwrap().claims;
        assert_eq!(claims.exp - claims.iat, WRITE_ASSERTION_SECONDS);
        assert_eq!(claims.request, Some(request));
        assert_eq!(signer.read_assertion(10_000).unwrap(), reading);
    }

    #[test]
    fn a_new_key_signs_at_once() {
        let signer = Signer::new(&identity());
        let before = signer.read_assertion(10_000).unwrap();
        signer.sign_with(&AgentKey::generate().unwrap());
        assert_ne!(signer.read_assertion(10_000).unwrap(), before);
    }

    #[test]
    fn an_assertion_is_used_until_a_minute_is_left_and_not_after_the_clock_moved_back() {
        let signer = Signer::new(&identity());
        let first = signer.read_assertion(10_000).unwrap();
        assert_eq!(signer.read_assertion(10_000 + 235).unwrap(), first);
        let second = signer.read_assertion(10_000 + 236).unwrap();
        assert_ne!(second, first);
        assert_ne!(signer.read_assertion(5_000).unwrap(), second);
    }
}
