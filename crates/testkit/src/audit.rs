//! The API server's audit log: every request, its user, its time and its result. It proves promises such as "makes no
//! request".

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// The audit log of one API server.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A position in the log.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Mark {
    offset: u64,
}

/// One request, as the API server saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`
    pub verb: String,
    pub user: String,
    /// The Pod whose token was used, if it is the token of a Pod.
    pub pod: Option<String>,
    /// The impersonated user, if any.
    pub impersonated: Option<String>,
    pub user_agent: String,
    pub uri: String,
    /// Empty for the core group, and for requests without a resource, such as `/readyz`.
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// `ResponseStarted` (watches, when they begin), `ResponseComplete` or `Panic`.
    pub stage: String,
    pub received: Timestamp,
    /// When this stage was reached.
    pub reached: Timestamp,
    pub code: u16,
}

impl Request {
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// Returns whether it could have changed something. A dry run could not.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.uri.contains("dryRun=All")
    }
}

impl AuditLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the current end of the log.
    pub fn mark(&self) -> Result<Mark> {
        let metadata = self.path.metadata().context("cannot read the audit log")?;
        Ok(Mark { offset: metadata.len() })
    }

    /// Returns all requests since the mark, in the order of the responses.
    pub fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        self.requests_with("", since)
    }

    /// Returns the requests whose lines contain the text. All tests of a run share one log, which grows to some hundred
    /// MB: only the lines that matter are parsed.
    fn requests_with(&self, text: &str, since: Mark) -> Result<Vec<Request>> {
        let mut file = File::open(&self.path).context("cannot open the audit log")?;
        file.seek(SeekFrom::Start(since.offset))?;
        let mut log = String::new();
        file.read_to_string(&mut log)?;
        // The server may be writing a line; the next call reads it.
        let whole = log.rfind('\n').map_or(0, |end| end + 1);
        log[..whole]
            .lines()
            .filter(|line| !line.is_empty() && line.contains(text))
            .map(|line| {
                let event: Event =
                    serde_json::from_str(line).with_context(|| format!("not an audit event: {line}"))?;
                Ok(event.into())
            })
            .collect()
    }

    /// Returns the requests of a user since the mark.
    pub fn requests_by(&self, user: &str, since: Mark) -> Result<Vec<Request>> {
        let mut requests = self.requests_with(user, since)?;
        requests.retain(|request| request.user == user);
        Ok(requests)
    }

    /// Returns the requests of a service account since the mark.
    pub fn requests_by_account(&self, namespace: &str, account: &str, since: Mark) -> Result<Vec<Request>> {
        self.requests_by(&format!("system:serviceaccount:{namespace}:{account}"), since)
    }
}

/// The fields of an `audit.k8s.io/v1` Event that are read here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    object_ref: ObjectRef,
    stage: String,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    #[serde(default)]
    response_status: Status,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: HashMap<String, Vec<String>>,
}

impl User {
    fn pod(&self) -> Option<String> {
        self.extra.get("authentication.kubernetes.io/pod-name")?.first().cloned()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

impl From<Event> for Request {
    fn from(event: Event) -> Self {
        let object = event.object_ref;
        Self {
            verb: event.verb,
            pod: event.user.pod(),
            user: event.user.username,
            impersonated: event.impersonated_user.map(|user| user.username),
            user_agent: event.user_agent,
            uri: event.request_uri,
            group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            stage: event.stage,
            received: event.request_received_timestamp,
            reached: event.stage_timestamp,
            code: event.response_status.code,
        }
    }
}
