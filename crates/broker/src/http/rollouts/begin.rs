//! How the rollout of a version or a deletion begins.

use brokkr_api::objects::DeploymentObject;
use brokkr_api::rollouts::{Gate, RolloutPolicy, RolloutState, Wave};
use brokkr_api::tokens::Role;
use brokkr_api::{ErrorCode, StackId};
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::domain::release::seed;
use crate::domain::rollout::policy::{Kind, resolve};
use crate::error::{ApiError, ApiResult};
use crate::http::change::check_reason;
use crate::http::write::Write;
use crate::state::Broker;
use crate::store::deployment_objects::{NewRollout, deployment_object_fetch_on_conn};
use crate::store::rollouts::rollout_lock_on_conn;
use crate::store::stacks::LockedStack;

/// How this version is rolled out. What is absent comes from the policies of the stack, its project and the installation.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RolloutQuery {
    /// The sizes of the waves, such as `1,10%,100%`.
    pub waves: Option<String>,
    /// How long a wave has to stay healthy before the next one begins.
    pub soak_seconds: Option<u32>,
    /// Release the version to every agent at once. Needs a reason.
    #[serde(default)]
    pub now: bool,
    /// Recorded in the audit log.
    #[serde(default)]
    pub reason: String,
}

impl RolloutQuery {
    /// Refuses a version that would ignore a freeze, unless an owner submits it.
    pub fn refuse_in_freeze(&self, broker: &Broker, stack: StackId, role: Role) -> ApiResult<()> {
        let is_frozen = || broker.index.snapshot().is_frozen(stack, Timestamp::now());
        if self.now && !role.includes(Role::Owner) && is_frozen() {
            let detail =
                "a freeze is in force; only an owner of the project may submit a version that ignores it";
            return Err(ApiError::new(ErrorCode::BRK1002, detail));
        }
        Ok(())
    }

    fn policy(&self) -> ApiResult<RolloutPolicy> {
        if self.now || !self.reason.is_empty() {
            check_reason(&self.reason)?;
        }
        let wave = |size: &str| -> ApiResult<Wave> {
            let size = size.trim().parse();
            let size = size.map_err(|error| ApiError::invalid_request(format!("waves: {error}")))?;
            Ok(Wave::of(size))
        };
        let waves = self.waves.as_ref().map(|waves| waves.split(',').map(wave).collect::<ApiResult<_>>());
        Ok(RolloutPolicy {
            staged: self.now.then_some(false).or(self.soak_seconds.map(|_| true)),
            waves: waves.transpose()?,
            soak_seconds: self.soak_seconds,
            ..RolloutPolicy::default()
        })
    }

    /// Returns the rollout of a version of this stack; none if every agent gets the version at once.
    pub fn begin(&self, stack: &LockedStack, kind: Kind, role: Role) -> ApiResult<Option<NewRollout>> {
        let kind = if stack.newest.is_none() && kind == Kind::Version { Kind::First } else { kind };
        let inline = self.policy()?;
        inline.check().map_err(ApiError::invalid_request)?;
        if inline.waves.is_some() || self.now {
            refuse_without_gates(stack, role, self.now)?;
        }
        let policies: Vec<RolloutPolicy> =
            [inline].into_iter().chain(stack.policies.iter().cloned()).collect();
        let begun = resolve(&policies, kind);
        Ok(begun.map(|policy| NewRollout { seed: seed(stack.id, stack.newest), policy }))
    }
}

/// Refuses a submission that would leave out a gate, unless its token could open that gate alone. In an emergency, an owner may.
fn refuse_without_gates(stack: &LockedStack, role: Role, is_emergency: bool) -> ApiResult<()> {
    let policy = resolve(&stack.policies, Kind::Version);
    let mut gates = policy.iter().flat_map(|policy| &policy.waves).filter_map(|wave| wave.gate.as_ref());
    let may_leave_out = |gate: &Gate| {
        let is_alone = gate.approvals == 1 && !gate.not_author;
        role.includes(gate.role) && (is_alone && !is_emergency || is_emergency && role.includes(Role::Owner))
    };
    let Some(gate) = gates.find(|gate| !may_leave_out(gate)) else { return Ok(()) };
    let detail = format!(
        "the policy of the stack has waves that need the approval of the role {}; submit without `waves` and `now`",
        gate.role
    );
    Err(ApiError::new(ErrorCode::BRK1002, detail))
}

/// Returns the deletion marker, if the stack is being deleted in waves.
pub async fn deletion_under_way(
    write: &mut Write,
    stack: &LockedStack,
) -> ApiResult<Option<DeploymentObject>> {
    if stack.staged.is_none() {
        return Ok(None);
    }
    let Some(rollout) = rollout_lock_on_conn(write.conn(), stack).await? else { return Ok(None) };
    if rollout.rollout.state == RolloutState::Stopped {
        return Ok(None);
    }
    let object = deployment_object_fetch_on_conn(write.conn(), rollout.sequence_id).await?;
    Ok(object.filter(|object| object.is_deletion_marker))
}

/// Refuses new content for a stack that is being deleted in waves.
pub async fn refuse_if_deleting(write: &mut Write, stack: &LockedStack) -> ApiResult<()> {
    if deletion_under_way(write, stack).await?.is_none() {
        return Ok(());
    }
    let detail = "the stack is being deleted in waves; stop that rollout first to keep the stack";
    Err(ApiError::new(ErrorCode::BRK2023, detail))
}
