//! Matchers for HTTP requests, and the faults that a rule can apply to them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::request::ProxiedRequest;
use super::response::CannedResponse;
use crate::rules::{self, Fault, InstalledRule};

type ChangeQuery = Arc<dyn Fn(&str) -> String + Send + Sync>;
type ChangeBody = Arc<dyn Fn(&ProxiedRequest, Bytes) -> Bytes + Send + Sync>;
type DropsEvent = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

pub type Matcher = rules::Matcher<ProxiedRequest>;
pub(super) type Rules = rules::Rules<ProxiedRequest, Action>;
pub(super) type ActiveRule = Arc<InstalledRule<ProxiedRequest, Action>>;

impl Matcher {
    /// Selects requests that could change something.
    pub fn writes() -> Self {
        Self::new(ProxiedRequest::is_write)
    }

    /// Selects server-side applies, without dry runs.
    pub fn applies() -> Self {
        Self::new(ProxiedRequest::is_apply)
    }

    pub fn deletes() -> Self {
        Self::new(ProxiedRequest::is_delete)
    }

    pub fn lists(resource: &str) -> Self {
        Self::new(ProxiedRequest::is_list).about(resource)
    }

    pub fn watches(resource: &str) -> Self {
        Self::new(ProxiedRequest::is_watch).about(resource)
    }

    /// Selects requests with a path that contains this text.
    pub fn path(part: &str) -> Self {
        let part = part.to_owned();
        Self::new(move |request| request.path.contains(&part))
    }

    pub fn about(self, resource: &str) -> Self {
        let resource = resource.to_owned();
        self.and(move |request| request.is_about(&resource))
    }

    pub fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        self.and(move |request| request.is_named(&name))
    }
}

/// Earlier responses to LISTs.
#[derive(Clone, Debug, Default)]
pub struct ListSnapshot(pub(super) Arc<HashMap<String, Bytes>>);

/// What the proxy does with a request.
#[derive(Clone)]
pub enum Action {
    /// Holds the request, and forwards it when the rule is released, whether or not the client still waits.
    Hold,
    /// Forwards the request at once and holds the response.
    HoldResponse,
    /// Holds the request like [`Action::Hold`], and every request after it: the point at which to kill a process.
    HaltBefore,
    /// Forwards the request, holds the response, and holds every request after it.
    HaltAfter,
    /// Forwards the request, then closes the connection instead of responding.
    LoseResponse,
    /// Closes the connection without forwarding the request.
    Cut,
    /// Responds without forwarding the request.
    Respond(CannedResponse),
    /// Forwards the request with another query.
    ChangeQuery(ChangeQuery),
    /// Forwards the request and changes the body of the response.
    ChangeBody(ChangeBody),
    /// Forwards the request and returns half of the response as if it were complete.
    Truncate,
    /// Forwards the request and closes the connection in the middle of the response.
    CutResponse,
    /// Responds to LISTs from the snapshot; forwards those that are not in it.
    StaleLists(ListSnapshot),
    /// Starts a watch that sends nothing, and closes it when the rule is removed.
    Freeze,
    /// Leaves out the events of a watch that pass the test.
    DropEvents(DropsEvent),
    /// Starts a watch that sends this line and ends.
    WatchLine(Bytes),
}

impl Action {
    /// Leaves out the watch events of objects with this name.
    pub fn drop_events_of(name: &str) -> Self {
        let name = name.to_owned();
        Self::DropEvents(Arc::new(move |object| object["metadata"]["name"] == name.as_str()))
    }

    pub fn change_body(change: impl Fn(&ProxiedRequest, Bytes) -> Bytes + Send + Sync + 'static) -> Self {
        Self::ChangeBody(Arc::new(change))
    }

    /// Returns LISTs in pages of this size, whatever the client requested.
    pub fn pages_of(size: usize) -> Self {
        Self::ChangeQuery(Arc::new(move |query| {
            let rest = query.split('&').filter(|pair| !pair.starts_with("limit="));
            let pairs: Vec<String> =
                std::iter::once(format!("limit={size}")).chain(rest.map(ToOwned::to_owned)).collect();
            pairs.join("&")
        }))
    }

    /// Returns whether a hit is counted when the fault has its effect, and not already when its rule is
    /// found.
    pub(super) fn counts_later(&self) -> bool {
        let after_the_response = matches!(self, Self::HaltAfter | Self::HoldResponse | Self::LoseResponse);
        after_the_response || matches!(self, Self::DropEvents(_) | Self::StaleLists(_))
    }
}

impl Fault for Action {
    fn halts(&self) -> bool {
        matches!(self, Self::HaltBefore | Self::HaltAfter)
    }
}
