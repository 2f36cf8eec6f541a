//! The hold after a restore: refuses changes by people, and is lifted by an admin.

use axum::extract::{Request, State};
use axum::middleware::Next;
use brokkr_api::system::{LiftHold, RaisedEpoch};
use brokkr_api::{ErrorCode, SequenceId};
use http::StatusCode;

use crate::access::Caller;
use crate::domain::hold::{is_allowed_on_hold, raise};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::{Change, check_reason};
use crate::http::write::{self, ResultStorage};
use crate::store::installation::{installation_before_raise_on_conn, installation_raise_on_conn};

/// Lift the hold: confirm that the restored database is the right one.
///
/// Raises the epoch, as `brokkr-broker epoch raise` does: agents accept responses again, and sequence ids continue above
/// every id that the database or an agent knows.
#[utoipa::path(post, path = "/api/v1/system/hold/lift", tag = "system", request_body = LiftHold,
    responses((status = 200, body = RaisedEpoch)))]
pub async fn lift_hold(State(broker): BrokerState, change: Change) -> ApiResult {
    let LiftHold { reason } = change.json()?;
    let by = change.caller()?.token()?.name.as_str();
    let reason = check_reason(&reason)?;
    let answered = write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        // Locks the installation: of two requests at once, the second finds no hold.
        let before = installation_before_raise_on_conn(write.conn()).await?;
        let Some(hold) = before.hold.clone() else {
            return Err(ApiError::new(ErrorCode::BRK3009, "there is no hold to lift"));
        };
        write.audit_reason(reason);
        let raised = raise(before.database, before.now, before.claims.iter().map(|(_, sequence)| *sequence));
        let raised_at = installation_raise_on_conn(write.conn(), &before, &raised, by, Some(reason)).await?;
        tracing::warn!(by, reason, epoch = raised.epoch, because = hold.because, "hold lifted");
        let lifted = RaisedEpoch {
            epoch: raised.epoch,
            epoch_before: before.database.epoch,
            raised_at,
            raised_by: by.to_owned(),
            reason: Some(reason.to_owned()),
            held_because: Some(hold.because),
            sequence_before: SequenceId(raised.highest),
            sequence_after: SequenceId(raised.sequence),
        };
        write.finish(StatusCode::OK, &lifted).await
    })
    .await?;
    // The other replicas read the state within a second.
    broker.restore.refresh(&broker.pool).await?;
    Ok(answered)
}

/// Refuses changes by people while the broker is on hold. Runs inside the guard of every route.
///
/// Agents pass: the broker needs to learn what they hold. A new route is refused by default.
pub async fn refuse_while_on_hold(State(broker): BrokerState, request: Request, next: Next) -> ApiResult {
    let person = matches!(request.extensions().get(), Some(Caller::Token(_)));
    if person
        && !is_allowed_on_hold(request.method(), request.uri().path())
        && broker.restore.hold().is_some()
    {
        return Err(broker.held());
    }
    Ok(next.run(request).await)
}
