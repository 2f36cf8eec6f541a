//! The installation as a whole, and the settlement of stacks that differ between agents and the restored database.

pub mod hold;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::page::Page;
use brokkr_api::protocol::{OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION};
use brokkr_api::system::{Holder, Settled, Settlement, System, UnsettledStack};
use brokkr_api::{ErrorCode, Name, StackId};
use http::StatusCode;
use sqlx::PgConnection;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::deployment_objects::publish;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::write::{self, ResultStorage, Write};
use crate::state::Broker;
use crate::store::Doing as _;
use crate::store::agents::agent_versions;
use crate::store::deployment_objects::{NewObject, WaveWait, deployment_object_fetch_content};
use crate::store::installation::{installation_raised, installation_state};
use crate::store::outbox::OutboxNotification;
use crate::store::privileges::privileges_check;
use crate::store::restore::{
    ReportedStack, Unsettled, restore_confirm_on_conn, restore_count, restore_find_on_conn, restore_holders,
    restore_list, restore_reported_on_conn, restore_stack_on_conn, restore_target_holders_on_conn,
};
use crate::store::stacks::{LockedStack, StackRef, stack_lock_on_conn};

/// The number of agent versions that are listed.
const VERSIONS: i64 = 20;

/// Show the installation: epoch, hold, and what is left to settle after a restore.
#[utoipa::path(get, path = "/api/v1/system", tag = "system", responses((status = 200, body = System)))]
pub async fn get_system(State(broker): BrokerState) -> ApiResult<Json<System>> {
    let state = installation_state(&broker.pool).await?;
    let counts = restore_count(&broker.pool).await?;
    Ok(Json(System {
        installation: broker.installation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL_VERSION,
        oldest_protocol: OLDEST_PROTOCOL_VERSION,
        epoch: state.epoch,
        position: broker.index.position().to_string(),
        hold: state.hold,
        agents_to_report: counts.to_report.cast_unsigned(),
        stacks_ahead: counts.ahead.cast_unsigned(),
        stacks_unknown: counts.unknown.cast_unsigned(),
        stacks_unconfirmed: counts.unconfirmed.cast_unsigned(),
        targets_kept: counts.kept.cast_unsigned(),
        raised: installation_raised(&broker.pool).await?,
        agent_versions: agent_versions(&broker.pool, VERSIONS).await?,
        database_role: Some(privileges_check(&broker.pool).await?),
    }))
}

/// List stacks of which agents hold a newer version than the restored database.
#[utoipa::path(get, path = "/api/v1/system/ahead", tag = "system", params(Paging),
    responses((status = 200, body = Page<UnsettledStack>)))]
pub async fn list_ahead(
    State(broker): BrokerState,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<UnsettledStack>>> {
    list(&broker, Unsettled::Ahead, &paging).await
}

/// List stacks that agents hold and the restored database does not know.
#[utoipa::path(get, path = "/api/v1/system/unknown", tag = "system", params(Paging),
    responses((status = 200, body = Page<UnsettledStack>)))]
pub async fn list_unknown(
    State(broker): BrokerState,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<UnsettledStack>>> {
    list(&broker, Unsettled::Unknown, &paging).await
}

/// List stacks that agents say they have although these do not target them.
#[utoipa::path(get, path = "/api/v1/system/unconfirmed", tag = "system", params(Paging),
    responses((status = 200, body = Page<UnsettledStack>)))]
pub async fn list_unconfirmed(
    State(broker): BrokerState,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<UnsettledStack>>> {
    list(&broker, Unsettled::Unconfirmed, &paging).await
}

async fn list(
    broker: &Broker,
    unsettled: Unsettled,
    paging: &Paging,
) -> ApiResult<Json<Page<UnsettledStack>>> {
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let stacks = restore_list(&broker.pool, unsettled, after, limit).await?;
    Ok(Json(Page::cut(stacks, limit, |stack: &UnsettledStack| stack.stack_id.to_string())))
}

/// List every agent that holds an unsettled stack, by name: the agents that a settlement reaches.
#[utoipa::path(get, path = "/api/v1/system/stacks/{stack}/holders", tag = "system",
    params(("stack" = String, Path, description = "Id, or name in the project of the token"), Paging),
    responses((status = 200, body = Page<Holder>)))]
pub async fn list_holders(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<Holder>>> {
    let mut connection = broker.pool.acquire().await.doing("get a connection")?;
    let (id, _) = find(&mut connection, caller.project(), &stack).await?;
    drop(connection);
    let limit = paging.limit();
    let holders = restore_holders(&broker.pool, id, paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(holders, limit, |holder: &Holder| holder.agent_name.to_string())))
}

/// Settle a stack that differs between agents and the restored database. `publish_restored` publishes the
/// restored content as a new object. `recreate` creates, under its old id and without content, a stack that
/// the database does not know, for the agents that hold it: they keep what they have until a new object is
/// submitted. `delete` removes such a stack from every agent that holds it. `keep` makes agents that have a stack without
/// being targets of it explicit targets, and `remove` removes the stack from them.
#[utoipa::path(post, path = "/api/v1/system/stacks/{stack}/settlement", tag = "system", request_body = Settlement,
    params(("stack" = String, Path, description = "Id, or name in the project of the token")),
    responses((status = 200, body = Settled)))]
pub async fn settle_stack(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    change: Change,
) -> ApiResult {
    let settlement: Settlement = change.json()?;
    let caller = change.caller()?;
    let (project, by) = (caller.project(), caller.token()?.name.as_str());
    if broker.restore.hold().is_some() {
        return Err(broker.held());
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let (id, known) = find(write.conn(), project, &stack).await?;
        let settled = match (settlement, known) {
            (Settlement::PublishRestored, Some(project)) => {
                publish_restored(&mut write, &project, id, by).await?
            }
            (Settlement::Keep, Some(project)) => keep(&mut write, &project, id).await?,
            (Settlement::Remove, Some(project)) => remove(&mut write, &project, id).await?,
            (Settlement::PublishRestored | Settlement::Keep | Settlement::Remove, None) => {
                return Err(unfit("this stack is not in the database; recreate or delete it"));
            }
            (Settlement::Recreate | Settlement::Delete, Some(_)) => {
                return Err(unfit(
                    "this stack is in the database; publish the restored content, or submit new content",
                ));
            }
            (Settlement::Recreate, None) => recreate(&mut write, id).await?,
            (Settlement::Delete, None) => delete(&mut write, id, by).await?,
        };
        tracing::info!(
            stack_id = %id,
            by,
            ?settlement,
            targets = settled.targets,
            "stack settled after a restore"
        );
        write.finish(StatusCode::OK, &settled).await
    })
    .await
}

/// Finds the one unsettled stack of this id or name. Returns its project, too, if the database knows the stack.
async fn find(
    connection: &mut PgConnection,
    project: &str,
    stack: &str,
) -> ApiResult<(StackId, Option<String>)> {
    let mut found = restore_find_on_conn(connection, project, &StackRef::read(stack)).await?;
    match found.len() {
        0 => Err(unfit("this stack does not differ between agents and the database, or it does not exist")),
        1 => Ok(found.remove(0)),
        _ => Err(unfit("several stacks have this name; use the id")
            .with_errors(found.iter().map(|(id, _)| id.to_string()).collect())),
    }
}

/// Publishes the restored content with a sequence id above the ones that agents hold.
async fn publish_restored(write: &mut Write, project: &str, id: StackId, by: &str) -> ApiResult<Settled> {
    let stack = lock(write, project, id).await?;
    let none = || unfit("the database has no version of this stack; submit one");
    let newest = stack.newest.ok_or_else(none)?;
    let stored = deployment_object_fetch_content(write.conn(), newest).await?.ok_or_else(none)?;
    let new = NewObject {
        checksum: stored.object.checksum,
        parsed_digest: stored.object.parsed_digest,
        is_deletion_marker: stored.object.is_deletion_marker,
        keeps_resources: stored.object.keeps_resources,
        is_urgent: false,
        resources: stored.object.resources,
        wave_wait: WaveWait::Kept(stored.object.wave_wait_seconds),
        // Jobs that have run do not run again because of a restore.
        rerun: Vec::new(),
        content: &stored.content,
        submitted_by: by,
        provenance: Provenance::default(),
    };
    let object = publish(write, &stack, &new, None).await?.object;
    Ok(settled(&stack, Some(object), 0))
}

/// Makes the agents that have the stack without being targets of it explicit targets.
async fn keep(write: &mut Write, project: &str, id: StackId) -> ApiResult<Settled> {
    let stack = lock(write, project, id).await?;
    let targets = restore_target_holders_on_conn(write.conn(), project, id).await?;
    if restore_confirm_on_conn(write.conn(), project, id).await? == 0 {
        return Err(unfit("every agent that has this stack is a target of it, or is removing it"));
    }
    write.notify(project, OutboxNotification::Stack(id)).await?;
    Ok(settled(&stack, None, targets))
}

/// Removes the stack from the agents that have it without being targets of it.
async fn remove(write: &mut Write, project: &str, id: StackId) -> ApiResult<Settled> {
    let stack = lock(write, project, id).await?;
    let removals = restore_confirm_on_conn(write.conn(), project, id).await?;
    if removals == 0 {
        return Err(unfit("every agent that has this stack is a target of it, or is removing it"));
    }
    write.notify(project, OutboxNotification::Stack(id)).await?;
    Ok(Settled { removals, ..settled(&stack, None, 0) })
}

/// Creates the stack under its old id with its holders as targets. Without an object, agents are sent nothing about
/// it, and keep what they have.
async fn recreate(write: &mut Write, id: StackId) -> ApiResult<Settled> {
    let reported = reported(write, id).await?;
    insert(write, id, &reported, false).await?;
    let targets = restore_target_holders_on_conn(write.conn(), &reported.project, id).await?;
    restore_confirm_on_conn(write.conn(), &reported.project, id).await?;
    let stack = lock(write, &reported.project, id).await?;
    write.notify(&stack.project, OutboxNotification::Stack(id)).await?;
    Ok(settled(&stack, None, targets))
}

/// Creates the stack as a deleted one, so that agents that hold it remove it.
async fn delete(write: &mut Write, id: StackId, by: &str) -> ApiResult<Settled> {
    let reported = reported(write, id).await?;
    insert(write, id, &reported, true).await?;
    let stack = lock(write, &reported.project, id).await?;
    let marker = NewObject::deletion_marker(by, false);
    let marker = publish(write, &stack, &marker, None).await?.object;
    let removals = restore_confirm_on_conn(write.conn(), &reported.project, id).await?;
    Ok(Settled { removals, ..settled(&stack, Some(marker), 0) })
}

/// Reads the stack's project and name. They come from an agent and are checked like any other input.
async fn reported(write: &mut Write, id: StackId) -> ApiResult<ReportedStack> {
    let mut all = restore_reported_on_conn(write.conn(), id).await?;
    // One lying agent must not choose the project of a stack that others have.
    if let [one, other, ..] = all.as_slice() {
        let names = format!("{}/{} and {}/{}", one.project, one.stack_name, other.project, other.stack_name);
        return Err(unfit(&format!(
            "agents disagree about project and name of this stack: {names}; revoke the agent that is wrong, then let it \
             rejoin or abandon it"
        )));
    }
    let reported = all
        .pop()
        .ok_or_else(|| unfit("no agent reported the name of this stack; upgrade one of the agents"))?;
    for name in [&reported.project, &reported.stack_name] {
        if name.parse::<Name>().is_err() {
            return Err(unfit("the reported name of the stack or its project is not a valid name"));
        }
    }
    Ok(reported)
}

async fn insert(write: &mut Write, id: StackId, reported: &ReportedStack, deleted: bool) -> ApiResult<()> {
    let inserted = restore_stack_on_conn(write.conn(), id, reported, deleted).await;
    inserted.map_err(|error| match error.is_taken() {
        true => {
            let detail = format!("another stack with the name {} now exists", reported.stack_name);
            ApiError::new(ErrorCode::BRK2002, detail).because(error)
        }
        false => error.into(),
    })
}

async fn lock(write: &mut Write, project: &str, id: StackId) -> ApiResult<LockedStack> {
    let stack = stack_lock_on_conn(write.conn(), project, &StackRef::Id(id)).await?;
    stack.ok_or_else(|| ApiError::not_found("stack"))
}

fn settled(stack: &LockedStack, object: Option<DeploymentObject>, targets: u64) -> Settled {
    let (project, stack_name) = (stack.project.clone(), stack.name.clone());
    Settled { project, stack_id: stack.id, stack_name, object, targets, removals: 0 }
}

fn unfit(detail: &str) -> ApiError {
    ApiError::new(ErrorCode::BRK3006, detail)
}
