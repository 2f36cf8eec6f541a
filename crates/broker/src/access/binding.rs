//! Whether an agent's assertion is for the request that carries it.

use brokkr_api::ErrorCode;
use brokkr_api::assertion::BoundRequest;
use brokkr_api::protocol::header;
use http::{HeaderMap, HeaderName, Method, Uri};

use crate::error::ApiError;

/// What an assertion has to allow.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// `GET`: any assertion for reading.
    Read,
    /// Everything else: an assertion for this request.
    Write(RequestHead<'a>),
}

impl<'a> Purpose<'a> {
    #[must_use]
    pub fn of(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap) -> Self {
        if method == Method::GET {
            return Self::Read;
        }
        let text = |name: &'static str| {
            headers.get(HeaderName::from_static(name)).map(|value| value.to_str().unwrap_or_default())
        };
        Self::Write(RequestHead {
            method: method.as_str(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()),
            idempotency_key: text(header::IDEMPOTENCY_KEY),
            session: text(header::SESSION),
        })
    }
}

/// The parts of a write that are known before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    pub idempotency_key: Option<&'a str>,
    pub session: Option<&'a str>,
}

/// The part of a request that differs from the one that the assertion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum BoundPart {
    #[strum(to_string = "method")]
    Method,
    #[strum(to_string = "path or query")]
    Path,
    #[strum(to_string = "idempotency key")]
    IdempotencyKey,
    #[strum(to_string = "session")]
    Session,
    #[strum(to_string = "body")]
    Body,
}

impl BoundPart {
    /// Returns the error for a request in which this part differs.
    #[must_use]
    pub fn refusal(self) -> ApiError {
        let detail = format!("the assertion is for another request: the {self} differs");
        ApiError::new(ErrorCode::BRK1010, detail)
    }
}

impl RequestHead<'_> {
    /// Returns the first part that differs. The body is compared when it is read: see `http/signed_body.rs`.
    #[must_use]
    pub fn difference(&self, bound: &BoundRequest) -> Option<BoundPart> {
        [
            (BoundPart::Method, bound.method == self.method),
            (BoundPart::Path, bound.path == self.path),
            (BoundPart::IdempotencyKey, bound.idempotency_key.as_deref() == self.idempotency_key),
            (BoundPart::Session, bound.session.as_deref() == self.session),
        ]
        .into_iter()
        .find_map(|(part, same)| (!same).then_some(part))
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::ids::Checksum;
    use http::HeaderValue;

    use super::*;

    fn bound() -> BoundRequest {
        BoundRequest {
            method: "PUT".to_owned(),
            path: "/api/v1/agents/a/holds?x=1".to_owned(),
            idempotency_key: Some("key".to_owned()),
            session: Some("1.a".to_owned()),
            body: Checksum::of(b""),
        }
    }

    #[test]
    fn every_part_of_the_head_has_to_be_the_same() {
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static(header::IDEMPOTENCY_KEY), HeaderValue::from_static("key")),
            (HeaderName::from_static(header::SESSION), HeaderValue::from_static("1.a")),
        ]);
        // With HTTP/2, the URI also has the host.
        let uri = Uri::from_static("https://broker.example/api/v1/agents/a/holds?x=1");
        let Purpose::Write(head) = Purpose::of(&Method::PUT, &uri, &headers) else {
            panic!("PUT is a write")
        };
        assert_eq!(head.difference(&bound()), None);
        for (other, part) in [
            (BoundRequest { method: "POST".to_owned(), ..bound() }, BoundPart::Method),
            (BoundRequest { path: "/api/v1/agents/a/holds".to_owned(), ..bound() }, BoundPart::Path),
            (BoundRequest { path: "/api/v1/agents/a/keys?x=1".to_owned(), ..bound() }, BoundPart::Path),
            (
                BoundRequest { idempotency_key: Some("other".to_owned()), ..bound() },
                BoundPart::IdempotencyKey,
            ),
            (BoundRequest { idempotency_key: None, ..bound() }, BoundPart::IdempotencyKey),
            (BoundRequest { session: Some("2.a".to_owned()), ..bound() }, BoundPart::Session),
            (BoundRequest { session: None, ..bound() }, BoundPart::Session),
        ] {
            assert_eq!(head.difference(&other), Some(part), "{other:?}");
        }
        let without = RequestHead { idempotency_key: None, session: None, ..head };
        assert_eq!(without.difference(&bound()), Some(BoundPart::IdempotencyKey));
    }

    #[test]
    fn only_get_is_a_read() {
        let (uri, headers) = (Uri::from_static("/api/v1/agents/a"), HeaderMap::new());
        for method in
            [Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE]
        {
            assert!(matches!(Purpose::of(&method, &uri, &headers), Purpose::Write(_)), "{method}");
        }
        assert!(matches!(Purpose::of(&Method::GET, &uri, &headers), Purpose::Read));
    }
}
