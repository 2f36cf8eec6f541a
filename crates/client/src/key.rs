//! The agent's key: created in its cluster, stored in a Secret there, never sent.

use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::EncodingKey;
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

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

    pub(crate) fn signing_key(&self) -> EncodingKey {
        EncodingKey::from_ed_der(self.pkcs8.expose_secret())
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
    fn an_invalid_key_is_refused_and_the_error_does_not_quote_it() {
        for text in ["", "secret", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----"] {
            let error = AgentKey::from_pkcs8_pem(text).unwrap_err();
            assert!(!error.to_string().contains("secret"));
        }
    }
}
