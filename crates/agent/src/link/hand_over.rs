//! Hands over contents that the broker lost in a restore and this cluster keeps.
//!
//! Asked again with each poll until it is done: nothing has to be remembered here.

use brokkr_api::AgentId;
use brokkr_client::{Client as Broker, ClientError};

use crate::keep::Contents;

pub async fn hand_over(broker: &Broker, agent: AgentId, contents: &Contents) -> Result<(), ClientError> {
    for wanted in broker.wanted_contents(agent).await? {
        let kept = match contents.load(wanted.stack_id, wanted.sequence_id).await {
            Ok(kept) => kept.filter(|kept| kept.checksum == wanted.checksum),
            // Asked again with the next poll.
            Err(error) => {
                tracing::warn!(%error, stack.id = %wanted.stack_id, "a content that the broker wants cannot be read");
                continue;
            }
        };
        let Some(kept) = kept else {
            let why = format!("the content of {} is not kept in this cluster any more", wanted.sequence_id);
            broker.hand_over_not(agent, wanted.stack_id, &why).await?;
            continue;
        };
        let object = broker.hand_over(agent, wanted.stack_id, kept.bytes).await?;
        tracing::info!(stack.id = %wanted.stack_id, sequence = %object.sequence_id, "handed over to the broker");
    }
    Ok(())
}
