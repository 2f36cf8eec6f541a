//! The namespaces of agents, which no submission may affect (C6).

use std::collections::BTreeSet;

use brokkr_api::{ErrorCode, StackId};
use brokkr_manifest::Manifest;

use crate::domain::targeting::reaches;
use crate::error::{ApiError, ApiResult};
use crate::http::change::Change;
use crate::http::headers::position;
use crate::state::Broker;
use crate::store::agents::{AgentNamespace, agents_by_namespace};

/// At most this many agents are named in an error.
const MOST_NAMED: usize = 20;

/// Returns the namespaces that the manifest affects.
pub fn affected(manifest: &Manifest) -> Vec<String> {
    let keys = manifest.objects.iter().map(|object| object.identity.key());
    let names = keys.filter_map(|key| key.affected_namespace().map(ToOwned::to_owned));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the agents whose own namespace the manifest affects; usually none. Then the index also knows the targets that
/// the caller has set, at whichever replica. Called before the transaction, which must not wait.
pub async fn agents_in(
    broker: &Broker,
    change: &Change,
    namespaces: &[String],
) -> ApiResult<Vec<AgentNamespace>> {
    let found = agents_by_namespace(&broker.pool, namespaces).await?;
    if !found.is_empty() {
        broker.catch_up(change.caller()?, position(&change.headers)?).await?;
    }
    Ok(found)
}

/// C6: refuses a manifest that affects the namespace of an agent that the stack targets. An agent that is targeted later
/// refuses it itself.
pub fn refuse(broker: &Broker, stack: StackId, affected: &[AgentNamespace]) -> ApiResult<()> {
    let snapshot = broker.index.snapshot();
    let Some(facts) = snapshot.stack(stack) else { return Ok(()) };
    let targeted = |(id, namespace): &AgentNamespace| {
        let agent = snapshot.agent(*id).filter(|agent| reaches(agent, facts))?;
        Some(format!("namespace {namespace} belongs to agent {}, and no stack may change it", agent.name))
    };
    let errors: Vec<String> = affected.iter().filter_map(targeted).take(MOST_NAMED).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let detail = "the manifest contains the namespace of an agent";
    Err(ApiError::new(ErrorCode::BRK2004, detail).with_errors(errors))
}
