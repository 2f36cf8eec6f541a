//! Sessions of the console: what a browser has instead of an API token.
//!
//! The secret of a session is only in a cookie that scripts cannot read. A session is a reference to its token: what the caller may
//! do is read from the cached token, so that a revoked token ends its sessions as soon as the token itself is refused
//! (`docs/decisions/0018-console-sessions.md`).

use std::error::Error;
use std::sync::Arc;

use brokkr_api::ErrorCode;
use brokkr_api::sessions::RECENT_SIGN_IN_SECONDS;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use sqlx::PgPool;

use super::credentials::Credentials;
use super::secret::{Secret, SecretKind};
use crate::error::ApiError;
use crate::store::StoreError;
use crate::store::sessions::{StoredSession, session_find, session_use};

/// With the prefix `__Host-`, a browser accepts the cookie only over TLS, only from this host, and only for all its paths: a
/// neighbouring host cannot set it.
const COOKIE_NAME: &str = "__Host-brokkr";
const ATTRIBUTES: &str = "Secure; HttpOnly; SameSite=Strict; Path=/";
const RECENT: SignedDuration = SignedDuration::from_secs(RECENT_SIGN_IN_SECONDS as i64);

#[derive(Debug, Default)]
pub struct Sessions {
    sessions: Credentials<StoredSession>,
}

impl Sessions {
    /// Returns the session with this hash, unless it has ended. Stores the use, at most once a minute.
    pub async fn find<P>(
        &self,
        pool: &PgPool,
        hash: [u8; 32],
        admit: impl Future<Output = Result<P, ApiError>>,
    ) -> Result<Option<Arc<StoredSession>>, ApiError> {
        self.sessions.find(hash, admit, find_and_use(pool, &hash)).await
    }

    /// Refuses a session that was closed here.
    pub async fn refuse(&self, hash: &[u8]) {
        self.sessions.refuse(hash).await;
    }
}

/// Checks that a session was opened recently. A stolen cookie cannot become a credential that lasts.
pub fn check_recent(opened_at: Timestamp, now: Timestamp) -> Result<(), ApiError> {
    if now.duration_since(opened_at) < RECENT {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::BRK1014, "the session was opened more than 15 minutes ago"))
}

async fn find_and_use(pool: &PgPool, hash: &[u8]) -> Result<Option<StoredSession>, StoreError> {
    let Some(session) = session_find(pool, hash).await? else { return Ok(None) };
    if !session.is_use_due {
        return Ok(Some(session));
    }
    match session_use(pool, session.id).await {
        Ok(ends_at) => Ok(ends_at.map(|ends_at| StoredSession { ends_at, ..session })),
        // A database that cannot be written to still serves readers.
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn Error,
                session_id = %session.id,
                "failed to store the use of a session; retrying with its next use"
            );
            Ok(Some(session))
        }
    }
}

/// The credential that a request has in its cookies.
#[derive(Debug)]
pub enum SessionCookie {
    /// It has no such cookie, or has another credential, so that cookies do not count.
    Absent,
    /// Damaged, or there are several.
    Malformed,
    Secret(Secret),
}

impl SessionCookie {
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        if headers.contains_key(AUTHORIZATION) {
            return Self::Absent;
        }
        let mut values = headers
            .get_all(COOKIE)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
            .filter_map(|pair| pair.trim_ascii().strip_prefix(COOKIE_NAME.as_bytes())?.strip_prefix(b"="));
        let Some(value) = values.next() else { return Self::Absent };
        let secret = std::str::from_utf8(value).ok().and_then(|text| Secret::read(SecretKind::Session, text));
        match (secret, values.next()) {
            (Some(secret), None) => Self::Secret(secret),
            _ => Self::Malformed,
        }
    }
}

/// Returns the value of `Set-Cookie` that stores the secret in the browser.
#[must_use]
pub fn set_cookie(secret: &Secret) -> HeaderValue {
    let text = format!("{COOKIE_NAME}={}; {ATTRIBUTES}", secret.expose());
    let mut value = HeaderValue::try_from(text).expect("a secret is printable ASCII");
    // Not shown when headers are printed.
    value.set_sensitive(true);
    value
}

/// Returns the value of `Set-Cookie` that deletes the cookie.
#[must_use]
pub fn delete_cookie() -> HeaderValue {
    HeaderValue::try_from(format!("{COOKIE_NAME}=; {ATTRIBUTES}; Max-Age=0")).expect("constants")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (COOKIE, HeaderValue::from_str(value).unwrap())).collect()
    }

    fn hash(headers: &HeaderMap) -> Option<[u8; 32]> {
        match SessionCookie::of(headers) {
            SessionCookie::Secret(secret) => Some(secret.hash()),
            SessionCookie::Absent | SessionCookie::Malformed => None,
        }
    }

    #[test]
    fn a_session_is_recent_for_fifteen_minutes() {
        let opened_at = Timestamp::UNIX_EPOCH;
        check_recent(opened_at, opened_at + SignedDuration::from_secs(899)).unwrap();
        let error = check_recent(opened_at, opened_at + SignedDuration::from_secs(900)).unwrap_err();
        assert_eq!(error.status(), http::StatusCode::FORBIDDEN);
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let secret = Secret::generate(SecretKind::Session);
        let text = secret.expose();
        for values in [
            vec![format!("__Host-brokkr={text}")],
            vec![format!("theme=dark; __Host-brokkr={text};lang=en")],
            vec!["theme=dark".to_owned(), format!("__Host-brokkr={text}")],
        ] {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            assert_eq!(hash(&cookies(&values)), Some(secret.hash()), "{values:?}");
        }
        assert!(matches!(SessionCookie::of(&HeaderMap::new()), SessionCookie::Absent));
        for other in
            [format!("brokkr={text}"), format!("__Host-brokkr-2={text}"), format!("__host-brokkr={text}")]
        {
            assert!(matches!(SessionCookie::of(&cookies(&[&other])), SessionCookie::Absent), "{other}");
        }
    }

    #[test]
    fn an_ambiguous_or_damaged_cookie_is_refused() {
        let (one, two) = (Secret::generate(SecretKind::Session), Secret::generate(SecretKind::Session));
        let token = Secret::generate(SecretKind::ApiToken);
        for value in [
            format!("__Host-brokkr={}; __Host-brokkr={}", one.expose(), two.expose()),
            format!("__Host-brokkr={}", &one.expose()[..40]),
            format!("__Host-brokkr={}", token.expose()),
            "__Host-brokkr=".to_owned(),
        ] {
            assert!(matches!(SessionCookie::of(&cookies(&[&value])), SessionCookie::Malformed), "{value}");
        }
    }

    #[test]
    fn a_request_with_another_credential_has_no_cookie() {
        let secret = Secret::generate(SecretKind::Session);
        let mut headers = cookies(&[&format!("__Host-brokkr={}", secret.expose())]);
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Basic anything"));
        assert!(matches!(SessionCookie::of(&headers), SessionCookie::Absent));
    }

    #[test]
    fn scripts_other_sites_and_other_hosts_do_not_get_the_cookie() {
        let secret = Secret::generate(SecretKind::Session);
        let set = set_cookie(&secret);
        let wanted = format!("__Host-brokkr={}; Secure; HttpOnly; SameSite=Strict; Path=/", secret.expose());
        assert_eq!(set.to_str().unwrap(), wanted);
        assert!(!format!("{set:?}").contains(secret.expose()));
        let wanted = "__Host-brokkr=; Secure; HttpOnly; SameSite=Strict; Path=/; Max-Age=0";
        assert_eq!(delete_cookie(), wanted);
    }
}
