//! What the agent must not forget between two runs: how often it started, and how far it has seen.
//!
//! Kept in one ConfigMap in its namespace. The position is written only when an answer changes
//! something, so that a quiet fleet costs its API servers nothing.

use anyhow::Context as _;
use brokkr_api::Position;
use brokkr_api::agents::{OpenSession, SessionVerdict};
use brokkr_api::ids::InstanceId;
use brokkr_api::protocol::Session;
use brokkr_client::{AgentIdentity, Client as Broker};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

pub const CONFIG_MAP: &str = "brokkr-agent-memory";
const SESSION: &str = "session";
const POSITION: &str = "position";

#[derive(Clone)]
pub struct Memory {
    api: Api<ConfigMap>,
}

/// What was remembered, with the count of this run already raised.
pub struct Remembered {
    pub session: Session,
    pub position: Position,
}

impl Memory {
    #[must_use]
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace) }
    }

    /// Raises the session count by one, with the resourceVersion as precondition: two processes never
    /// get the same count from one cluster.
    pub async fn start(&self) -> anyhow::Result<Remembered> {
        loop {
            let found = self.api.get_opt(CONFIG_MAP).await.context("read what the agent remembers")?;
            let mut map = found.clone().unwrap_or_default();
            map.metadata.name = Some(CONFIG_MAP.to_owned());
            let data = map.data.get_or_insert_default();
            let read = |field: &str| data.get(field).cloned().unwrap_or_default();
            let count = read(SESSION).parse::<i64>().unwrap_or_default() + 1;
            let position = read(POSITION).parse().unwrap_or_default();
            data.insert(SESSION.to_owned(), count.to_string());
            let written = match found {
                None => self.api.create(&PostParams::default(), &map).await,
                Some(_) => self.api.replace(CONFIG_MAP, &PostParams::default(), &map).await,
            };
            match written {
                Ok(_) => {
                    let session = Session { count, instance: InstanceId::generate() };
                    return Ok(Remembered { session, position });
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error).context("raise the session count"),
            }
        }
    }

    pub async fn keep_position(&self, position: Position) -> Result<(), kube::Error> {
        let patch = json!({"data": {POSITION: position.to_string()}});
        self.api.patch(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
    }
}

/// Tells the broker about this run; the highest count serves.
pub async fn open_session(
    broker: &Broker,
    identity: &AgentIdentity,
    session: Session,
) -> anyhow::Result<SessionVerdict> {
    let opening = OpenSession { count: session.count, instance: session.instance };
    let opened =
        broker.open_session(identity.agent_id, &opening).await.context("open a session at the broker")?;
    Ok(opened.verdict)
}
