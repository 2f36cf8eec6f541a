//! Proofs of possession: an agent registers or replaces a key only with a signature of that key, and replaces one only
//! with a signature of the old key, too.
//!
//! The signatures are about the key, not about the HTTP request. So no credential that is captured on the way, not even
//! one for exactly this request, is enough to register another key.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::agents::{RegisterAgent, RotateKey};
use brokkr_api::key_proof::{PublicKey, key_change_message, registration_message};
use brokkr_api::{AgentId, ErrorCode, InstallationId};

use crate::error::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProof {
    #[error("{0} must be 32 bytes in base64url without padding")]
    MalformedKey(&'static str),
    #[error("the new key did not sign this key, agent and installation")]
    NewKey,
    #[error("the old key did not sign this key, agent and installation")]
    OldKey,
    #[error("the key did not sign this registration")]
    Registration,
}

impl From<BadProof> for ApiError {
    fn from(bad: BadProof) -> Self {
        match bad {
            BadProof::MalformedKey(_) => Self::invalid_request(bad.to_string()),
            BadProof::NewKey | BadProof::OldKey | BadProof::Registration => {
                Self::new(ErrorCode::BRK1011, bad.to_string())
            }
        }
    }
}

/// A replacement of a key that both keys have signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenKeyChange {
    pub old_key: PublicKey,
    pub new_key: PublicKey,
}

/// Verifies both signatures. Whether the old key is the agent's current one is decided when its row is locked.
pub fn verify_key_change(
    installation: InstallationId,
    agent: AgentId,
    request: &RotateKey,
) -> Result<ProvenKeyChange, BadProof> {
    let new_key = read_public_key("public_key", &request.public_key)?;
    let old_key = read_public_key("old_public_key", &request.old_public_key)?;
    let message = key_change_message(installation, agent, &old_key, &new_key);
    verify(&new_key, &message, &request.signature, BadProof::NewKey)?;
    verify(&old_key, &message, &request.old_signature, BadProof::OldKey)?;
    Ok(ProvenKeyChange { old_key, new_key })
}

/// Verifies the signature of a registration and returns the key.
pub fn verify_registration(request: &RegisterAgent) -> Result<PublicKey, BadProof> {
    let key = read_public_key("public_key", &request.public_key)?;
    let message = registration_message(&request.token, &key);
    verify(&key, &message, &request.signature, BadProof::Registration)?;
    Ok(key)
}

fn read_public_key(field: &'static str, text: &str) -> Result<PublicKey, BadProof> {
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    bytes.try_into().map_err(|_| BadProof::MalformedKey(field))
}

fn verify(key: &PublicKey, message: &[u8], signature: &str, bad: BadProof) -> Result<(), BadProof> {
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| bad)?;
    UnparsedPublicKey::new(&ED25519, key).verify(message, &signature).map_err(|_| bad)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    fn key(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn public(key: &Ed25519KeyPair) -> PublicKey {
        key.public_key().as_ref().try_into().unwrap()
    }

    fn text(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the request of an agent that has both keys.
    fn change(
        installation: InstallationId,
        agent: AgentId,
        old: &Ed25519KeyPair,
        new: &Ed25519KeyPair,
    ) -> RotateKey {
        let message = key_change_message(installation, agent, &public(old), &public(new));
        RotateKey {
            public_key: text(public(new)),
            old_public_key: text(public(old)),
            signature: text(new.sign(&message)),
            old_signature: text(old.sign(&message)),
        }
    }

    #[test]
    fn a_key_change_needs_both_signatures_of_exactly_this_change() {
        let (installation, agent) = (InstallationId::generate(), AgentId::generate());
        let (old, new, other) = (key(1), key(2), key(3));
        let good = change(installation, agent, &old, &new);
        let proven = ProvenKeyChange { old_key: public(&old), new_key: public(&new) };
        assert_eq!(verify_key_change(installation, agent, &good), Ok(proven));

        let elsewhere = change(InstallationId::generate(), agent, &old, &new);
        let of_another_agent = change(installation, AgentId::generate(), &old, &new);
        let from_another_key = change(installation, agent, &other, &new);
        let to_another_key = change(installation, agent, &old, &other);
        let tampered = [
            (elsewhere.clone(), BadProof::NewKey),
            (of_another_agent.clone(), BadProof::NewKey),
            (RotateKey { old_signature: elsewhere.old_signature, ..good.clone() }, BadProof::OldKey),
            (RotateKey { old_signature: of_another_agent.old_signature, ..good.clone() }, BadProof::OldKey),
            (RotateKey { signature: from_another_key.signature.clone(), ..good.clone() }, BadProof::NewKey),
            (
                RotateKey { old_signature: to_another_key.old_signature.clone(), ..good.clone() },
                BadProof::OldKey,
            ),
            (RotateKey { public_key: to_another_key.public_key, ..good.clone() }, BadProof::NewKey),
            (RotateKey { old_public_key: from_another_key.old_public_key, ..good.clone() }, BadProof::NewKey),
            (RotateKey { signature: good.old_signature.clone(), ..good.clone() }, BadProof::NewKey),
            (RotateKey { old_signature: good.signature.clone(), ..good.clone() }, BadProof::OldKey),
            (RotateKey { signature: String::new(), ..good.clone() }, BadProof::NewKey),
            (RotateKey { old_signature: String::new(), ..good.clone() }, BadProof::OldKey),
            (RotateKey { signature: "not base64".to_owned(), ..good.clone() }, BadProof::NewKey),
            (
                RotateKey { public_key: "short".to_owned(), ..good.clone() },
                BadProof::MalformedKey("public_key"),
            ),
            (RotateKey { old_public_key: String::new(), ..good }, BadProof::MalformedKey("old_public_key")),
        ];
        for (request, bad) in tampered {
            assert_eq!(verify_key_change(installation, agent, &request), Err(bad), "{request:?}");
        }
    }

    #[test]
    fn a_registration_needs_the_signature_of_this_key_and_token() {
        let (new, other) = (key(2), key(3));
        let registration = |key: &Ed25519KeyPair, token: &str| RegisterAgent {
            token: token.to_owned(),
            public_key: text(public(key)),
            signature: text(key.sign(&registration_message(token, &public(key)))),
        };
        let good = registration(&new, "brj_one");
        assert_eq!(verify_registration(&good), Ok(public(&new)));
        for (request, bad) in [
            (RegisterAgent { token: "brj_two".to_owned(), ..good.clone() }, BadProof::Registration),
            (RegisterAgent { public_key: text(public(&other)), ..good.clone() }, BadProof::Registration),
            (
                RegisterAgent { signature: registration(&other, "brj_one").signature, ..good.clone() },
                BadProof::Registration,
            ),
            (RegisterAgent { signature: String::new(), ..good.clone() }, BadProof::Registration),
            (RegisterAgent { public_key: "short".to_owned(), ..good }, BadProof::MalformedKey("public_key")),
        ] {
            assert_eq!(verify_registration(&request), Err(bad), "{request:?}");
        }
    }
}
