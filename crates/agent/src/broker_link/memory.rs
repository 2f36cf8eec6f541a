//! The agent's own state between two runs: its session count (higher in each run), the highest position
//! (how much of the broker's database) that it has seen, its status, and why it refuses responses, if it does.
//!
//! Stored in one ConfigMap in the agent's namespace. A value is written only when it changes, so that an idle fleet
//! puts no load on its API servers. If the ConfigMap is deleted while the agent runs, it is created again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use brokkr_api::agents::{AgentStatus, OpenSession, OpenedSession};
use brokkr_api::ids::InstanceId;
use brokkr_api::protocol::Session;
use brokkr_api::{AgentId, PositionToken};
use brokkr_client::Client as Broker;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Mutex;

use crate::own_objects::{RequestError, with_deadline};

pub const CONFIG_MAP: &str = "brokkr-agent-memory";
const SESSION: &str = "session";
/// Whether a session with this state was opened. The session count alone is stored before the broker knows it.
const OPENED: &str = "opened";
const POSITION: &str = "position";
const STATUS: &str = "status";
/// Why nothing new is accepted from the broker. The log has the details.
const REFUSED: &str = "refused";

type Data = BTreeMap<String, String>;

#[derive(Clone)]
pub struct Memory {
    api: Api<ConfigMap>,
    /// As it was last read or written.
    data: Arc<Mutex<Data>>,
}

/// The stored state, with the session count of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    pub session: Session,
    /// With its proof, so that it can be shown again.
    pub position: PositionToken,
    /// The last status from the broker; none before the first answer.
    pub status: Option<AgentStatus>,
    /// No earlier run has stored that it opened a session: this is the first run, or the stored state was lost.
    pub is_new: bool,
}

impl Memory {
    #[must_use]
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace), data: Arc::default() }
    }

    /// Raises the session count above that of every earlier run, with the resourceVersion as precondition, so
    /// that two processes never get the same count from one cluster.
    pub async fn start(&self, earlier: i64) -> anyhow::Result<Remembered> {
        loop {
            let found =
                with_deadline(self.api.get_opt(CONFIG_MAP)).await.context("read the agent's stored state")?;
            let mut map = found.clone().unwrap_or_default();
            map.metadata.name = Some(CONFIG_MAP.to_owned());
            let data = map.data.get_or_insert_default();
            let mut remembered = read(data);
            remembered.session.count = remembered.session.count.max(earlier) + 1;
            data.insert(SESSION.to_owned(), remembered.session.count.to_string());
            let data = data.clone();
            let written = match found {
                None => with_deadline(self.api.create(&PostParams::default(), &map)).await,
                Some(_) => with_deadline(self.api.replace(CONFIG_MAP, &PostParams::default(), &map)).await,
            };
            match written {
                Ok(_) => {
                    *self.data.lock().await = data;
                    return Ok(remembered);
                }
                Err(error) if error.is(409) => {}
                Err(error) => return Err(error).context("raise the session count"),
            }
        }
    }

    pub async fn keep_opened(&self) -> Result<(), RequestError> {
        self.keep(OPENED, "true".to_owned()).await
    }

    /// Stores the session count of an earlier run, so that the next run exceeds it.
    pub async fn keep_session(&self, count: i64) -> Result<(), RequestError> {
        self.keep(SESSION, count.to_string()).await
    }

    /// Returns the session count of the newest process of this cluster; 0 if the stored state was lost.
    pub async fn newest_session(&self) -> Result<i64, RequestError> {
        let found = with_deadline(self.api.get_opt(CONFIG_MAP)).await?;
        Ok(found.and_then(|map| map.data).map(|data| read(&data).session.count).unwrap_or_default())
    }

    pub async fn keep_position(&self, position: PositionToken) -> Result<(), RequestError> {
        self.keep(POSITION, position.to_string()).await
    }

    pub async fn keep_status(&self, status: AgentStatus) -> Result<(), RequestError> {
        self.keep(STATUS, status.to_string()).await
    }

    /// Stores why responses are refused, where the owner of the cluster sees it; nothing once they are accepted again.
    pub async fn keep_refused(&self, refused: Option<&str>) -> Result<(), RequestError> {
        let is_stored = self.data.lock().await.get(REFUSED).is_some_and(|text| !text.is_empty());
        if refused.is_none() && !is_stored {
            return Ok(());
        }
        self.keep(REFUSED, refused.unwrap_or_default().to_owned()).await
    }

    /// Forgets the highest seen position, and returns it if there was one.
    pub async fn forget_position(&self) -> Result<Option<String>, RequestError> {
        let Some(found) = with_deadline(self.api.get_opt(CONFIG_MAP)).await? else { return Ok(None) };
        let Some(position) = found.data.as_ref().and_then(|data| data.get(POSITION).cloned()) else {
            return Ok(None);
        };
        let patch = Patch::Merge(json!({"data": {POSITION: null, REFUSED: null}}));
        with_deadline(self.api.patch(CONFIG_MAP, &PatchParams::default(), &patch)).await?;
        Ok(Some(position))
    }

    async fn keep(&self, field: &str, value: String) -> Result<(), RequestError> {
        let mut data = self.data.lock().await;
        if data.get(field) == Some(&value) {
            return Ok(());
        }
        let mut changed = data.clone();
        changed.insert(field.to_owned(), value.clone());
        let patch = Patch::Merge(json!({"data": {field: value}}));
        match with_deadline(self.api.patch(CONFIG_MAP, &PatchParams::default(), &patch)).await {
            Err(error) if error.is(404) => {
                let map = ConfigMap {
                    metadata: ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() },
                    data: Some(changed.clone()),
                    ..ConfigMap::default()
                };
                with_deadline(self.api.create(&PostParams::default(), &map)).await?;
            }
            written => {
                written?;
            }
        }
        *data = changed;
        Ok(())
    }
}

/// A value that cannot be read counts as absent: the broker sends it again.
fn read(data: &Data) -> Remembered {
    let text = |field: &str| data.get(field).map(String::as_str).unwrap_or_default();
    Remembered {
        session: Session {
            count: text(SESSION).parse().unwrap_or_default(),
            instance: InstanceId::generate(),
        },
        position: text(POSITION).parse().unwrap_or_default(),
        status: text(STATUS).parse().ok(),
        is_new: !data.contains_key(OPENED),
    }
}

/// Opens a session at the broker. Only the session with the highest count may write.
pub async fn open_session(
    broker: &Broker,
    agent: AgentId,
    session: Session,
    namespace: &str,
) -> anyhow::Result<OpenedSession> {
    let opening = OpenSession {
        count: session.count,
        instance: session.instance,
        namespace: Some(namespace.to_owned()),
    };
    broker.open_session(agent, &opening).await.context("open a session with the broker")
}
