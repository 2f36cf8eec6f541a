//! Reading and writing records at the API server.

use std::time::Duration;

use brokkr_api::{AgentId, StackId};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

use super::pack::PackError;
use super::wire::{self, from_object, record_name, to_object};
use crate::plan::types::Record;

const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Records {
    api: Api<DynamicObject>,
    agent: AgentId,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Somebody else wrote it since: read it again.
    #[error("the record was changed by somebody else")]
    Stale,
    #[error("the record cannot be read or written at the API server")]
    Api(#[source] kube::Error),
    #[error("the API server did not answer in time")]
    Timeout,
    #[error(transparent)]
    Pack(#[from] PackError),
}

impl Records {
    #[must_use]
    pub fn new(client: Client, agent: AgentId) -> Self {
        let resource = ApiResource {
            group: wire::GROUP.into(),
            version: wire::VERSION.into(),
            api_version: format!("{}/{}", wire::GROUP, wire::VERSION),
            kind: wire::KIND.into(),
            plural: wire::PLURAL.into(),
        };
        Self { api: Api::all_with(client, &resource), agent }
    }

    /// Everything this agent owns, as the cluster knows it.
    pub async fn load(&self) -> Result<Vec<Record>, RecordError> {
        let mut records = Vec::new();
        let mut page = ListParams::default().limit(100);
        loop {
            let list = timely(self.api.list(&page)).await?;
            for object in list.items {
                let name = object.metadata.name.clone().unwrap_or_default();
                // One record that cannot be read stops its own stack, not the agent.
                match self.read(object) {
                    Ok(record) => records.extend(record),
                    Err(error) => tracing::error!(record = name, %error, "record cannot be read; left alone"),
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(records),
            }
        }
    }

    /// Creates or replaces it; answers the new resourceVersion.
    pub async fn write(&self, record: &Record) -> Result<String, RecordError> {
        let object: DynamicObject =
            serde_json::from_value(to_object(record, self.agent)?).map_err(PackError::Json)?;
        let name = record_name(&record.stack_name, record.stack);
        let written = match &record.version {
            None => timely(self.api.create(&PostParams::default(), &object)).await,
            Some(_) => match timely(self.api.replace(&name, &PostParams::default(), &object)).await {
                // Deleted by hand: made again.
                Err(RecordError::Api(kube::Error::Api(status))) if status.code == 404 => {
                    let mut object = object;
                    object.metadata.resource_version = None;
                    timely(self.api.create(&PostParams::default(), &object)).await
                }
                other => other,
            },
        };
        match written {
            Ok(object) => Ok(object.metadata.resource_version.unwrap_or_default()),
            Err(RecordError::Api(kube::Error::Api(status))) if status.code == 409 => Err(RecordError::Stale),
            Err(error) => Err(error),
        }
    }

    pub async fn fetch(&self, stack_name: &str, stack: StackId) -> Result<Option<Record>, RecordError> {
        match timely(self.api.get_opt(&record_name(stack_name, stack))).await? {
            Some(object) => self.read(object),
            None => Ok(None),
        }
    }

    pub async fn delete(&self, stack_name: &str, stack: StackId) -> Result<(), RecordError> {
        let name = record_name(stack_name, stack);
        match timely(self.api.delete(&name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            Err(RecordError::Api(kube::Error::Api(status))) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read(&self, object: DynamicObject) -> Result<Option<Record>, RecordError> {
        let object: Value = serde_json::to_value(object).map_err(PackError::Json)?;
        Ok(from_object(object, self.agent)?)
    }
}

async fn timely<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RecordError> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(RecordError::Api),
        Err(_) => Err(RecordError::Timeout),
    }
}
