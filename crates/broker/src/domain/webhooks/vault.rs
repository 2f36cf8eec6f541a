//! Encrypts the secrets of webhooks, which the broker has to read again for signing (a hash would not do).
//! Each is bound to its webhook: neither a copy of the database nor a row copied to another webhook reveals a
//! secret.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brokkr_api::WebhookId;
use brokkr_api::ids::Checksum;

const KEY_BYTES: usize = 32;

pub struct Vault {
    key: RandomizedNonceKey,
    key_id: String,
}

/// The webhook that a secret belongs to.
#[derive(Clone, Copy, Debug)]
pub struct SecretOwner<'a> {
    pub project: &'a str,
    pub webhook: WebhookId,
}

impl SecretOwner<'_> {
    fn aad(&self) -> Aad<Vec<u8>> {
        Aad::from(format!("brokkr: secret of a webhook\0{}\0{}", self.project, self.webhook).into_bytes())
    }
}

/// An encrypted secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The id of the key it was encrypted with; reveals nothing about the key itself.
    pub key_id: String,
    pub bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    #[error(
        "the secret key must be {KEY_BYTES} random bytes in base64; create one with `openssl rand -base64 32`"
    )]
    BadKey,
    #[error(
        "the secret was encrypted with key {sealed}, but this broker has key {here}; start it with the other key"
    )]
    OtherKey { sealed: String, here: String },
    #[error("failed to decrypt the secret: it was changed or belongs to another webhook")]
    Damaged,
}

impl Vault {
    /// Parses the key of the installation.
    pub fn read(text: &str) -> Result<Self, VaultError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| VaultError::BadKey)?;
        if bytes.len() != KEY_BYTES {
            return Err(VaultError::BadKey);
        }
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| VaultError::BadKey)?;
        let named = [b"brokkr: name of a key\0".as_slice(), &bytes].concat();
        Ok(Self { key, key_id: Checksum::of(&named).to_string()[..16].to_owned() })
    }

    pub fn seal(&self, owner: SecretOwner<'_>, clear: &[u8]) -> Result<Sealed, VaultError> {
        let mut sealed = clear.to_vec();
        let nonce = self.key.seal_in_place_append_tag(owner.aad(), &mut sealed);
        let nonce = nonce.map_err(|_| VaultError::Damaged)?;
        Ok(Sealed { key_id: self.key_id.clone(), bytes: [&nonce.as_ref()[..], &sealed[..]].concat() })
    }

    pub fn open(&self, owner: SecretOwner<'_>, stored: &Sealed) -> Result<Vec<u8>, VaultError> {
        if stored.key_id != self.key_id {
            let (sealed, here) = (stored.key_id.clone(), self.key_id.clone());
            return Err(VaultError::OtherKey { sealed, here });
        }
        let (nonce, sealed) = stored.bytes.split_at_checked(NONCE_LEN).ok_or(VaultError::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| VaultError::Damaged)?;
        let mut sealed = sealed.to_vec();
        let clear = self.key.open_in_place(nonce, owner.aad(), &mut sealed);
        clear.map(|clear| clear.to_vec()).map_err(|_| VaultError::Damaged)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({})", self.key_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(byte: u8) -> Vault {
        Vault::read(&STANDARD.encode([byte; KEY_BYTES])).unwrap()
    }

    #[test]
    fn s18_a_secret_opens_only_with_its_key_and_for_its_webhook() {
        let here = SecretOwner { project: "shop", webhook: WebhookId::generate() };
        let sealed = vault(1).seal(here, b"secret").unwrap();
        assert_eq!(vault(1).open(here, &sealed).unwrap(), b"secret");
        assert!(!sealed.bytes.windows(6).any(|bytes| bytes == b"secret"));
        assert_ne!(vault(1).seal(here, b"secret").unwrap().bytes, sealed.bytes, "each has its own nonce");
        assert!(matches!(vault(2).open(here, &sealed), Err(VaultError::OtherKey { .. })));
        for elsewhere in
            [SecretOwner { project: "other", ..here }, SecretOwner { webhook: WebhookId::generate(), ..here }]
        {
            assert_eq!(vault(1).open(elsewhere, &sealed), Err(VaultError::Damaged));
        }
        let mut cut = sealed;
        cut.bytes.truncate(5);
        assert_eq!(vault(1).open(here, &cut), Err(VaultError::Damaged));
    }

    #[test]
    fn a_key_is_32_bytes() {
        for bad in ["", "x", "AAAA", &STANDARD.encode([0u8; 33])] {
            assert_eq!(Vault::read(bad).unwrap_err(), VaultError::BadKey, "{bad}");
        }
    }
}
