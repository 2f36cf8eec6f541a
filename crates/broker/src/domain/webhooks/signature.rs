//! Signatures by the Standard Webhooks specification: HMAC-SHA256 over `id.timestamp.body`. A message has one
//! signature for each valid secret, so that receivers can switch to a new secret when they are ready.

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

pub const ID: &str = "webhook-id";
pub const TIMESTAMP: &str = "webhook-timestamp";
pub const SIGNATURE: &str = "webhook-signature";

const PREFIX: &str = "whsec_";
const SHORTEST: usize = 24;
const LONGEST: usize = 64;

/// The secret that sender and receiver share. Shown once, stored encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret must be whsec_ followed by {SHORTEST} to {LONGEST} bytes in base64")]
pub struct BadSecret;

impl WebhookSecret {
    #[must_use]
    pub fn generate() -> Self {
        let mut bytes = vec![0u8; 32];
        // Without random bytes there is no safe way to continue.
        SystemRandom::new().fill(&mut bytes).expect("the system gives random bytes");
        Self(bytes)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSecret> {
        let fits = (SHORTEST..=LONGEST).contains(&bytes.len());
        fits.then(|| Self(bytes.to_vec())).ok_or(BadSecret)
    }

    pub fn read(text: &str) -> Result<Self, BadSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(BadSecret)?;
        Self::from_bytes(&STANDARD.decode(encoded).map_err(|_| BadSecret)?)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text that receivers configure.
    #[must_use]
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    fn sign(&self, id: &str, second: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(format!("{id}.{second}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// Returns the value of the signature header: one signature for each secret, separated by spaces.
#[must_use]
pub fn signatures(secrets: &[WebhookSecret], id: &str, at: Timestamp, body: &[u8]) -> String {
    let each: Vec<String> = secrets.iter().map(|secret| secret.sign(id, at.as_second(), body)).collect();
    each.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_message_has_the_known_signature() {
        let secret = WebhookSecret::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let at = Timestamp::from_second(1_614_265_330).unwrap();
        let signed = signatures(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn during_a_rotation_each_secret_signs() {
        let (old, new) = (WebhookSecret::generate(), WebhookSecret::generate());
        let at = Timestamp::from_second(1).unwrap();
        let alone = |secret: &WebhookSecret| signatures(std::slice::from_ref(secret), "a", at, b"{}");
        let both = signatures(&[new.clone(), old.clone()], "a", at, b"{}");
        assert_eq!(both, format!("{} {}", alone(&new), alone(&old)));
        assert_ne!(alone(&new), alone(&old));
    }

    #[test]
    fn a_secret_is_read_back_and_others_are_not_secrets() {
        let secret = WebhookSecret::generate();
        assert_eq!(WebhookSecret::read(&secret.expose()), Ok(secret.clone()));
        assert!(!format!("{secret:?}").contains(&secret.expose()[6..]));
        let short = format!("whsec_{}", STANDARD.encode([0u8; 23]));
        let long = format!("whsec_{}", STANDARD.encode([0u8; 65]));
        for bad in ["", "whsec_", "whsec_!", &secret.expose()[6..], &short, &long] {
            assert_eq!(WebhookSecret::read(bad), Err(BadSecret), "{bad}");
        }
    }
}
