//! The format of tokens: a prefix for secret scanners, 32 random bytes, and a checksum, so that a mistyped or truncated
//! token is distinguished from a revoked one without a query.

use std::fmt;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::ids::Checksum;
use sha2::{Digest as _, Sha256};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// For users and machines.
    ApiToken,
    /// For one agent to join.
    JoinToken,
    /// For one browser, in a cookie.
    Session,
}

impl SecretKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::ApiToken => "brk_",
            Self::JoinToken => "brj_",
            Self::Session => "brs_",
        }
    }
}

/// A token in the clear. Shown once; only its hash is stored.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn generate(kind: SecretKind) -> Self {
        let mut bytes = [0u8; 32];
        // Without random bytes there is no safe way to continue.
        SystemRandom::new().fill(&mut bytes).expect("the system gives random bytes");
        let body = format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(bytes));
        let checksum = checksum(&body);
        Self(body + &checksum)
    }

    /// Parses a token of this kind; none if it is malformed.
    #[must_use]
    pub fn read(kind: SecretKind, text: &str) -> Option<Self> {
        let body_length = kind.prefix().len() + 43;
        let (body, sum) = text.split_at_checked(body_length)?;
        (body.starts_with(kind.prefix()) && sum == checksum(body)).then(|| Self(text.to_owned()))
    }

    /// Returns the hash that is stored and looked up. Plain SHA-256 is sufficient for 256 random bits.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn checksum(body: &str) -> String {
    Checksum::of(body.as_bytes()).to_string()[..6].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_a_damaged_one_is_not() {
        let secret = Secret::generate(SecretKind::ApiToken);
        let text = secret.expose();
        assert!(text.starts_with("brk_"));
        assert_eq!(Secret::read(SecretKind::ApiToken, text).unwrap().hash(), secret.hash());
        assert!(Secret::read(SecretKind::JoinToken, text).is_none());
        assert!(Secret::read(SecretKind::ApiToken, &text[..text.len() - 1]).is_none());
        assert!(Secret::read(SecretKind::ApiToken, &text.replace(&text[10..11], "~")).is_none());
        assert!(Secret::read(SecretKind::ApiToken, "").is_none());
        assert!(!format!("{secret:?}").contains(&text[4..]));
    }
}
