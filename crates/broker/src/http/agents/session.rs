//! Sessions: each process of an agent opens one with a higher count, and only the highest may write.

use axum::extract::State;
use brokkr_api::agents::{OpenSession, SessionVerdict};
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::protocol::{Capability, header};
use http::StatusCode;
use http::header::USER_AGENT;

use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::headers::{capabilities, own_capabilities};
use crate::http::write::{self, ResultStorage};
use crate::store::agents::agent_open_session_on_conn;
use crate::store::outbox::OutboxNotification;

const LONGEST_VERSION: usize = 40;

/// Open a session.
///
/// The verdict says whether this process may write.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/session", tag = "agents", request_body = OpenSession,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = brokkr_api::agents::OpenedSession)))]
pub async fn open_session(State(broker): BrokerState, change: Change) -> ApiResult {
    let session: OpenSession = change.json()?;
    let agent = change.caller()?.agent()?.id;
    if session.namespace.as_deref().is_some_and(|name| !is_namespace(name)) {
        return Err(ApiError::invalid_request("namespace must be the name of a Kubernetes namespace"));
    }
    if session.count < 1 {
        return Err(ApiError::invalid_request("count must be at least 1"));
    }
    let mut response = write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let version = change.headers.get(USER_AGENT).and_then(|agent| version_in(agent.to_str().ok()?));
        let allows_upgrades = capabilities(&change.headers).has(Capability::Upgrade);
        let opened =
            agent_open_session_on_conn(write.conn(), agent, &session, version, allows_upgrades).await?;
        if opened.verdict != SessionVerdict::Superseded {
            write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent)).await?;
        }
        if opened.verdict == SessionVerdict::Duplicated {
            tracing::error!(
                agent_id = %agent,
                count = session.count,
                "two processes claim the same session of this agent"
            );
        }
        write.finish(StatusCode::OK, &opened).await
    })
    .await?;
    // The agent has to know the capabilities of this broker before its first report.
    response.headers_mut().insert(header::CAPABILITIES, own_capabilities());
    Ok(response)
}

fn is_namespace(name: &str) -> bool {
    let is_plain = name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-');
    is_plain && (1..=63).contains(&name.len())
}

/// Returns the version in `brokkr-agent/1.2.3`, if it looks like one.
fn version_in(user_agent: &str) -> Option<&str> {
    let version = user_agent.strip_prefix("brokkr-agent/")?.split_whitespace().next()?;
    let is_plain = version.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '+'));
    (is_plain && version.len() <= LONGEST_VERSION).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_version_strings_are_accepted() {
        assert_eq!(version_in("brokkr-agent/1.2.3-rc.1+5"), Some("1.2.3-rc.1+5"));
        assert_eq!(version_in("brokkr-agent/1.2.3 (linux)"), Some("1.2.3"));
        let long = format!("brokkr-agent/{}", "1".repeat(41));
        for other in ["curl/8", "brokkr-agent", "brokkr-agent/", "brokkr-agent/<b>", &long] {
            assert_eq!(version_in(other), None, "{other}");
        }
    }
}
