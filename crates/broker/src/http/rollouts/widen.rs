//! How agents that a stack gains by other targets get its version: a few at once, many in waves.

use brokkr_api::rollouts::RolloutState;
use brokkr_api::webhooks::WebhookEvent;
use brokkr_api::{AgentId, ErrorCode, Selector};

use crate::domain::release::seed;
use crate::domain::rollout::policy::{Kind, resolve};
use crate::domain::rollout::widening::{Delivery, UnderWay};
use crate::domain::webhooks::happening::{Happening, NamedStack};
use crate::error::{ApiError, ApiResult};
use crate::http::write::Write;
use crate::state::Broker;
use crate::store::deployment_objects::NewRollout;
use crate::store::rollouts::{rollout_lock_on_conn, rollout_supersede_on_conn};
use crate::store::stacks::LockedStack;
use crate::store::widenings::{widening_forget_on_conn, widening_insert_on_conn};

/// Decides how the agents that these targets add get the version that the others have. Called before the targets are replaced, with
/// a current index.
pub async fn widen(
    broker: &Broker,
    write: &mut Write,
    stack: &LockedStack,
    agents: &[AgentId],
    selectors: &[Selector],
    by: &str,
) -> ApiResult<()> {
    // Without a version that every agent gets, there is at most a rollout, of which all targets are members.
    if stack.newest.is_none() {
        return Ok(());
    }
    let Some(policy) = resolve(&stack.policies, Kind::First) else {
        return deliver_at_once(write, stack).await;
    };
    let gain = {
        let snapshot = broker.index.snapshot();
        let known = snapshot.stack(stack.id);
        // Another change of the targets has come in between.
        let is_same = known.and_then(|known| known.widening()).map(|widening| widening.key) == stack.widening;
        known.filter(|_| is_same).map(|known| snapshot.gain(known, agents, selectors))
    };
    let Some(gain) = gain else { return Err(broker.behind(broker.index.position())) };
    let limit = policy.in_flight_limit(gain.members);
    let under_way = rollout_lock_on_conn(write.conn(), stack).await?;
    let under_way = under_way.map(|under_way| match (under_way.widens, under_way.rollout.state) {
        (Some(_), RolloutState::Paused | RolloutState::Stopped) => UnderWay::HeldWidening,
        (Some(_), _) => UnderWay::Widening,
        (None, _) => UnderWay::Version,
    });
    // The order depends on the base, so that a widening that takes the place of another one begins with the same agents.
    let new = NewRollout { seed: seed(stack.id, stack.newest), policy };
    match gain.delivery(limit, stack.widening.is_some(), under_way) {
        Delivery::AtOnce => deliver_at_once(write, stack).await,
        Delivery::Unchanged => Ok(()),
        Delivery::Refused => {
            let detail = format!(
                "the rollout to the agents that the stack has gained is paused or stopped; resume or abort it before you add more than {limit} agents"
            );
            Err(ApiError::new(ErrorCode::BRK2023, detail))
        }
        Delivery::NextVersion => {
            widening_insert_on_conn(write.conn(), stack, &new, by, false).await?;
            tracing::info!(stack_id = %stack.id, stack = stack.name, agents = gain.new, "gained agents wait for the rollout");
            Ok(())
        }
        Delivery::InWaves => {
            rollout_supersede_on_conn(write.conn(), stack).await?;
            let (key, begun_at) = widening_insert_on_conn(write.conn(), stack, &new, by, true).await?;
            tracing::info!(
                stack_id = %stack.id,
                stack = stack.name,
                sequence_id = %key,
                agents = gain.waiting,
                "gained agents get the version in waves"
            );
            let named = NamedStack { id: stack.id, name: stack.name.clone() };
            let happening = Happening::of_stack(WebhookEvent::RolloutStarted, begun_at, named, key);
            write.notify_webhooks(&stack.project, &happening).await
        }
    }
}

/// Ends the widening that has not completed, if there is one: every target gets the version.
async fn deliver_at_once(write: &mut Write, stack: &LockedStack) -> ApiResult<()> {
    if stack.widening.is_none() {
        return Ok(());
    }
    let under_way = rollout_lock_on_conn(write.conn(), stack).await?;
    if under_way.is_some_and(|rollout| rollout.widens.is_some()) {
        rollout_supersede_on_conn(write.conn(), stack).await?;
    }
    Ok(widening_forget_on_conn(write.conn(), &stack.project, stack.id).await?)
}
