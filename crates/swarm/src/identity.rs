//! The identity of an agent, derived from a seed and a number, so that nothing has to be stored.

use anyhow::{Result, anyhow};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::agents::RegisterAgent;
use brokkr_api::assertion::{AssertionClaims, BoundRequest};
use brokkr_api::key_proof::registration_message;
use brokkr_api::protocol::Session;
use brokkr_api::{AgentId, InstallationId, InstanceId};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Assertions are backdated, because with clocks that differ a little they would otherwise come from the future.
const BACKDATE_SECONDS: i64 = 5;
const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

/// One agent of the swarm.
#[derive(Clone, Debug)]
pub struct Identity {
    pub agent: AgentId,
    /// The session that it begins with.
    pub session: Session,
    /// Whether the broker knows that session already.
    pub enrolled: bool,
    secret: [u8; 32],
}

impl Identity {
    #[must_use]
    pub fn derive(seed: u64, number: usize) -> Self {
        let agent = AgentId(uuid_of("agent", seed, number));
        let instance = InstanceId(uuid_of("instance", seed, number));
        let secret = digest("key", seed, number);
        Self { agent, session: Session { count: 1, instance }, enrolled: true, secret }
    }

    /// Returns an identity with the same key and the id that the broker assigned when the agent joined. Its
    /// session is not open yet.
    #[must_use]
    pub fn joined(self, agent: AgentId) -> Self {
        Self { agent, enrolled: false, ..self }
    }

    fn key(&self) -> Result<Ed25519KeyPair> {
        Ed25519KeyPair::from_seed_unchecked(&self.secret)
            .map_err(|_| anyhow!("the secret is not a valid key"))
    }

    pub fn public_key(&self) -> Result<[u8; 32]> {
        Ok(self.key()?.public_key().as_ref().try_into()?)
    }

    /// Returns the request that registers the key with a join token.
    pub fn registration(&self, join_token: &str) -> Result<RegisterAgent> {
        let public_key = self.public_key()?;
        let signature = self.key()?.sign(&registration_message(join_token, &public_key));
        Ok(RegisterAgent {
            token: join_token.to_owned(),
            public_key: URL_SAFE_NO_PAD.encode(public_key),
            signature: URL_SAFE_NO_PAD.encode(signature),
        })
    }

    /// Returns a signed assertion for reading, and the second in which it expires.
    pub fn read_assertion(&self, installation: InstallationId, now: i64) -> Result<(String, i64)> {
        self.assertion(installation, now, None)
    }

    /// Returns a signed assertion for this request only.
    pub fn write_assertion(
        &self,
        installation: InstallationId,
        now: i64,
        request: BoundRequest,
    ) -> Result<String> {
        Ok(self.assertion(installation, now, Some(request))?.0)
    }

    fn assertion(
        &self,
        installation: InstallationId,
        now: i64,
        request: Option<BoundRequest>,
    ) -> Result<(String, i64)> {
        let claims = AssertionClaims::new(self.agent, installation, now - BACKDATE_SECONDS, request);
        let mut text = URL_SAFE_NO_PAD.encode(HEADER);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(serde_json::to_vec(&claims)?, &mut text);
        let signature = self.key()?.sign(text.as_bytes());
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut text);
        Ok((text, claims.exp))
    }
}

fn digest(what: &str, seed: u64, number: usize) -> [u8; 32] {
    Sha256::digest(format!("brokkr-swarm {what} {seed} {number}")).into()
}

fn uuid_of(what: &str, seed: u64, number: usize) -> Uuid {
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&digest(what, seed, number)[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use brokkr_api::assertion::READ_ASSERTION_SECONDS;

    use super::*;

    #[test]
    fn the_same_seed_and_number_are_the_same_agent_and_any_other_is_another() {
        let one = Identity::derive(1, 7);
        assert_eq!(one.agent, Identity::derive(1, 7).agent);
        assert_eq!(one.public_key().unwrap(), Identity::derive(1, 7).public_key().unwrap());
        assert_ne!(one.agent, Identity::derive(1, 8).agent);
        assert_ne!(one.public_key().unwrap(), Identity::derive(2, 7).public_key().unwrap());
    }

    #[test]
    fn the_public_key_verifies_an_assertion() {
        let one = Identity::derive(1, 7);
        let (text, expires) = one.read_assertion(InstallationId::generate(), 1_000_000).unwrap();
        assert_eq!(expires, 1_000_000 - BACKDATE_SECONDS + READ_ASSERTION_SECONDS);
        let (signed, signature) = text.rsplit_once('.').unwrap();
        let key = one.public_key().unwrap();
        let key = aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ED25519, key);
        key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    }
}
