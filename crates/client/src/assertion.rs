//! The agent's assertion: a short-lived JWT, signed with its key and sent with each request.
//!
//! The broker caches verified assertions, so one assertion is used until shortly before it expires.

use std::sync::{Mutex, MutexGuard, PoisonError};

use brokkr_api::protocol::ASSERTION_SECONDS;
use brokkr_api::{AgentId, InstallationId};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use crate::credential::AgentIdentity;
use crate::error::{ClientError, Result};
use crate::key::AgentKey;

/// A new assertion is created when the old one is valid for less than this.
const RENEW_SECONDS: i64 = 60;
/// Assertions are backdated by this, because clocks may differ by less than [`crate::clock`] notices.
const BACKDATE_SECONDS: i64 = 5;

#[derive(Serialize)]
struct Claims {
    iss: AgentId,
    sub: AgentId,
    aud: InstallationId,
    iat: i64,
    exp: i64,
}

/// Creates assertions and caches the last one.
pub(crate) struct Signer {
    agent_id: AgentId,
    installation_id: InstallationId,
    state: Mutex<SigningState>,
}

/// The key, and the last assertion with its expiry.
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

    /// Returns an assertion that is valid at `now`, in seconds of the broker's clock.
    pub(crate) fn assertion(&self, now: i64) -> Result<String> {
        let mut state = self.state();
        if let Some((assertion, expires)) = state.last.as_ref() {
            let left = expires - now;
            // More than the full lifetime left means that the clock was moved back: the broker would refuse
            // this assertion.
            if (RENEW_SECONDS..=ASSERTION_SECONDS).contains(&left) {
                return Ok(assertion.clone());
            }
        }
        let issued = now - BACKDATE_SECONDS;
        let expires = issued + ASSERTION_SECONDS;
        let claims = Claims {
            iss: self.agent_id,
            sub: self.agent_id,
            aud: self.installation_id,
            iat: issued,
            exp: expires,
        };
        let assertion = jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &state.key)
            .map_err(|_| ClientError::Unsendable { what: "the agent's key cannot sign" })?;
        state.last = Some((assertion.clone(), expires));
        Ok(assertion)
    }
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
        let assertion = Signer::new(&identity).assertion(now).unwrap();
        let public = URL_SAFE_NO_PAD.decode(identity.key.public_key_base64url()).unwrap();
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_audience(&[identity.installation_id]);
        validation.set_issuer(&[identity.agent_id]);
        let key = DecodingKey::from_ed_der(&public);
        let claims = jsonwebtoken::decode::<serde_json::Value>(&assertion, &key, &validation).unwrap().claims;
        assert_eq!(claims["sub"], identity.agent_id.to_string());
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), ASSERTION_SECONDS);
        validation.set_audience(&[InstallationId::generate()]);
        assert!(jsonwebtoken::decode::<serde_json::Value>(&assertion, &key, &validation).is_err());
    }

    #[test]
    fn a_new_key_signs_at_once() {
        let signer = Signer::new(&identity());
        let before = signer.assertion(10_000).unwrap();
        signer.sign_with(&AgentKey::generate().unwrap());
        assert_ne!(signer.assertion(10_000).unwrap(), before);
    }

    #[test]
    fn an_assertion_is_used_until_a_minute_is_left_and_not_after_the_clock_moved_back() {
        let signer = Signer::new(&identity());
        let first = signer.assertion(10_000).unwrap();
        assert_eq!(signer.assertion(10_000 + 235).unwrap(), first);
        let second = signer.assertion(10_000 + 236).unwrap();
        assert_ne!(second, first);
        assert_ne!(signer.assertion(5_000).unwrap(), second);
    }
}
