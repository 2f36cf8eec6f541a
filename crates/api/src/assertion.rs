//! The claims of an agent's assertion: a JWT that the agent signs with its key and sends as its credential.
//!
//! An assertion without a request is for reading: the agent uses it for every `GET` until it expires, so that the
//! broker can cache it. Every other request has an assertion of its own, which names exactly that request. So an
//! assertion that is captured on the way, for example at a proxy that terminates TLS, cannot be used to write anything
//! that the agent did not write itself.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Checksum, InstallationId};

/// How long an assertion for reading is valid at most.
pub const READ_ASSERTION_SECONDS: i64 = 300;
/// How long an assertion for writing is valid at most. It is used for one attempt of one request.
pub const WRITE_ASSERTION_SECONDS: i64 = 60;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssertionClaims {
    pub iss: AgentId,
    pub sub: AgentId,
    pub aud: InstallationId,
    pub iat: i64,
    pub exp: i64,
    /// The only request that the assertion is valid for; none if it is for reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<BoundRequest>,
}

impl AssertionClaims {
    /// Returns claims that are valid from `issued` for as long as allowed.
    #[must_use]
    pub fn new(
        agent: AgentId,
        installation: InstallationId,
        issued: i64,
        request: Option<BoundRequest>,
    ) -> Self {
        let exp = issued + longest_lifetime(request.as_ref());
        Self { iss: agent, sub: agent, aud: installation, iat: issued, exp, request }
    }
}

/// Returns how long an assertion for this request is valid at most, in seconds.
#[must_use]
pub fn longest_lifetime(request: Option<&BoundRequest>) -> i64 {
    if request.is_some() { WRITE_ASSERTION_SECONDS } else { READ_ASSERTION_SECONDS }
}

/// The request that an assertion is valid for.
///
/// The idempotency key is included so that a repetition always gets the first result, and the session so that a
/// request of an old process cannot be sent in the name of its successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundRequest {
    pub method: String,
    /// The path and the query as the broker serves them, without the path prefix of a proxy.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The value of [`crate::protocol::header::SESSION`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The SHA-256 of the body.
    pub body: Checksum,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_assertion_for_writing_names_a_request_and_it_is_valid_for_a_shorter_time() {
        let (agent, installation) = (AgentId::generate(), InstallationId::generate());
        let request = BoundRequest {
            method: "PUT".to_owned(),
            path: "/api/v1/agents/a/holds?x=1".to_owned(),
            idempotency_key: Some("k".to_owned()),
            session: None,
            body: Checksum::of(b"{}"),
        };
        let reading = AssertionClaims::new(agent, installation, 1000, None);
        let writing = AssertionClaims::new(agent, installation, 1000, Some(request));
        assert_eq!((reading.exp, writing.exp), (1300, 1060));
        let json = serde_json::to_value(&reading).unwrap();
        assert_eq!(json.get("request"), None);
        let json = serde_json::to_value(&writing).unwrap();
        assert_eq!(json["request"]["path"], "/api/v1/agents/a/holds?x=1");
        assert_eq!(json["request"]["body"], Checksum::of(b"{}").to_string());
        assert_eq!(serde_json::from_value::<AssertionClaims>(json).unwrap(), writing);
    }
}
