//! The agent's key: created in its cluster, stored in a Secret there, never sent.

use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use brokkr_api::agents::{RegisterAgent, RotateKey};
use brokkr_api::key_proof::{key_change_message, registration_message};
use jsonwebtoken::EncodingKey;
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

use crate::credential::AgentIdentity;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// An Ed25519 key pair.
#[derive(Clone)]
pub struct AgentKey {
    pkcs8: Arc<SecretBox<Vec<u8>>>,
    public: [u8; 32],
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("failed to get random bytes from the operating system for a new key")]
    Generate,
    #[error("the key is not an Ed25519 private key in PKCS#8 PEM form")]
    Unreadable,
}

impl AgentKey {
    pub fn generate() -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| KeyError::Generate)?;
        let document = pair.to_pkcs8().map_err(|_| KeyError::Generate)?;
        Self::from_der(document.as_ref())
    }

    /// Reads the format of [`AgentKey::to_pkcs8_pem`].
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, KeyError> {
        let (_, rest) = pem.split_once(BEGIN).ok_or(KeyError::Unreadable)?;
        let (body, _) = rest.split_once(END).ok_or(KeyError::Unreadable)?;
        let body: String = body.split_ascii_whitespace().collect();
        Self::from_der(&STANDARD.decode(body).map_err(|_| KeyError::Unreadable)?)
    }

    fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_pkcs8(der).map_err(|_| KeyError::Unreadable)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Unreadable)?;
        Ok(Self { pkcs8: Arc::new(SecretBox::new(Box::new(der.to_vec()))), public })
    }

    /// Returns the key for a Secret in the agent's own cluster.
    #[must_use]
    pub fn to_pkcs8_pem(&self) -> SecretString {
        let body = STANDARD.encode(self.pkcs8.expose_secret());
        let mut pem = format!("{BEGIN}\n");
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = after;
        }
        pem.push_str(END);
        pem.push('\n');
        pem.into()
    }

    /// Returns the public key in the format of the registration.
    #[must_use]
    pub fn public_key_base64url(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.public)
    }

    /// Returns the request that registers this key with a join token.
    pub fn registration(&self, join_token: &str) -> Result<RegisterAgent, KeyError> {
        Ok(RegisterAgent {
            token: join_token.to_owned(),
            public_key: self.public_key_base64url(),
            signature: self.signature(&registration_message(join_token, &self.public))?,
        })
    }

    fn signature(&self, message: &[u8]) -> Result<String, KeyError> {
        let pair =
            Ed25519KeyPair::from_pkcs8(self.pkcs8.expose_secret()).map_err(|_| KeyError::Unreadable)?;
        Ok(URL_SAFE_NO_PAD.encode(pair.sign(message)))
    }

    pub(crate) fn signing_key(&self) -> EncodingKey {
        EncodingKey::from_ed_der(self.pkcs8.expose_secret())
    }
}

impl AgentIdentity {
    /// Returns the request that replaces the key of this agent by `next`, signed by both.
    pub fn key_change(&self, next: &AgentKey) -> Result<RotateKey, KeyError> {
        let message = key_change_message(self.installation_id, self.agent_id, &self.key.public, &next.public);
        Ok(RotateKey {
            public_key: next.public_key_base64url(),
            old_public_key: self.key.public_key_base64url(),
            signature: next.signature(&message)?,
            old_signature: self.key.signature(&message)?,
        })
    }
}

impl std::fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AgentKey({})", self.public_key_base64url())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_key_is_the_same_key() {
        let key = AgentKey::generate().unwrap();
        let again = AgentKey::from_pkcs8_pem(key.to_pkcs8_pem().expose_secret()).unwrap();
        assert_eq!(again.public_key_base64url(), key.public_key_base64url());
        assert_eq!(key.public_key_base64url().len(), 43);
        assert_ne!(AgentKey::generate().unwrap().public_key_base64url(), key.public_key_base64url());
    }

    #[test]
    fn both_keys_sign_a_key_change_and_the_key_signs_its_registration() {
        use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
        use brokkr_api::{AgentId, InstallationId};

        let verify = |key: &AgentKey, message: &[u8], signature: &str| {
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            UnparsedPublicKey::new(&ED25519, key.public).verify(message, &signature).unwrap();
        };
        let (key, next) = (AgentKey::generate().unwrap(), AgentKey::generate().unwrap());
        let identity =
            AgentIdentity { agent_id: AgentId::generate(), installation_id: InstallationId::generate(), key };
        let change = identity.key_change(&next).unwrap();
        let message = key_change_message(
            identity.installation_id,
            identity.agent_id,
            &identity.key.public,
            &next.public,
        );
        verify(&next, &message, &change.signature);
        verify(&identity.key, &message, &change.old_signature);
        let registration = next.registration("brj_token").unwrap();
        verify(&next, &registration_message("brj_token", &next.public), &registration.signature);
    }

    #[test]
    fn an_invalid_key_is_refused_and_the_error_does_not_quote_it() {
        for text in ["", "secret", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----"] {
            let error = AgentKey::from_pkcs8_pem(text).unwrap_err();
            assert!(!error.to_string().contains("secret"));
        }
    }
}
