//! The messages that an agent signs to prove that it has a key.
//!
//! Each message begins with its own purpose and has parts of fixed length, so that a signature of one message is never a
//! valid signature of another. None is a prefix of a JWT: those begin with base64url.

use crate::ids::{AgentId, Checksum, InstallationId};

/// An Ed25519 public key.
pub type PublicKey = [u8; 32];

const KEY_CHANGE: &[u8] = b"brokkr: agent key change, version 1\0";
const REGISTRATION: &[u8] = b"brokkr: agent registration, version 1\0";

/// Returns the message that both keys sign when an agent replaces its key. It names the old key, so that it is of no use
/// once another key is the current one.
#[must_use]
pub fn key_change_message(
    installation: InstallationId,
    agent: AgentId,
    old_key: &PublicKey,
    new_key: &PublicKey,
) -> Vec<u8> {
    [KEY_CHANGE, installation.0.as_bytes(), agent.0.as_bytes(), old_key, new_key].concat()
}

/// Returns the message that the key signs when an agent registers. The agent does not know the installation yet; the
/// token is valid in one installation only.
#[must_use]
pub fn registration_message(join_token: &str, key: &PublicKey) -> Vec<u8> {
    [REGISTRATION, &Checksum::of(join_token.as_bytes()).0, key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_in_the_message_once_and_in_order() {
        let (installation, agent) = (InstallationId::generate(), AgentId::generate());
        let message = key_change_message(installation, agent, &[1; 32], &[2; 32]);
        assert_eq!(message.len(), KEY_CHANGE.len() + 16 + 16 + 32 + 32);
        for other in [
            key_change_message(InstallationId::generate(), agent, &[1; 32], &[2; 32]),
            key_change_message(installation, AgentId::generate(), &[1; 32], &[2; 32]),
            key_change_message(installation, agent, &[3; 32], &[2; 32]),
            key_change_message(installation, agent, &[1; 32], &[3; 32]),
            key_change_message(installation, agent, &[2; 32], &[1; 32]),
        ] {
            assert_ne!(other, message);
        }
        let registration = registration_message("brj_one", &[2; 32]);
        assert_ne!(registration, registration_message("brj_two", &[2; 32]));
        assert_ne!(registration, registration_message("brj_one", &[1; 32]));
        assert!(!message.starts_with(REGISTRATION) && !registration.starts_with(KEY_CHANGE));
    }
}
