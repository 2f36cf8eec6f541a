//! The namespaces of agents, which no submission may affect (C6).

use std::collections::BTreeSet;

use brokkr_api::{AgentId, ErrorCode};
use brokkr_manifest::Manifest;

use crate::domain::targeting::reaches;
use crate::error::{ApiError, ApiResult};
use crate::http::change::Change;
use crate::http::headers::position;
use crate::http::write::Write;
use crate::state::Broker;
use crate::store::agents::agents_living_in_on_conn;
use crate::store::stacks::LockedStack;

/// At most this many agents are named in an error.
const MOST_NAMED: usize = 20;

/// Returns the namespaces that the manifest affects.
pub fn affected(manifest: &Manifest) -> Vec<String> {
    let keys = manifest.objects.iter().map(|object| object.identity.key());
    let names = keys.filter_map(|key| key.namespace_concerned().map(ToOwned::to_owned));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// C6: refuses a manifest that affects the own namespace of an agent that the stack targets. An agent that is targeted
/// later refuses it itself.
pub async fn refuse_those_of_agents(
    broker: &Broker,
    change: &Change,
    write: &mut Write,
    stack: &LockedStack,
    namespaces: &[String],
) -> ApiResult<()> {
    let living = agents_living_in_on_conn(write.conn(), namespaces).await?;
    if living.is_empty() {
        return Ok(());
    }
    // The targets may have been set a moment ago, at another replica.
    broker.catch_up_for(change.caller()?, position(&change.headers)?).await?;
    let snapshot = broker.index.snapshot();
    let Some(facts) = snapshot.stack(stack.id) else { return Ok(()) };
    let targeted = |(id, namespace): &(AgentId, String)| {
        let agent = snapshot.agent(*id).filter(|agent| reaches(agent, facts))?;
        Some(format!(
            "namespace {namespace} is the own namespace of agent {}, which no stack may change",
            agent.name
        ))
    };
    let errors: Vec<String> = living.iter().filter_map(targeted).take(MOST_NAMED).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let detail = "the manifest contains an agent's own namespace";
    Err(ApiError::new(ErrorCode::BRK2004, detail).with_errors(errors))
}
