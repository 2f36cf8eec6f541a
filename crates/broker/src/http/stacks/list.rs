//! Lists stacks, or deleted stacks that agents still hold, with filters, sorting, paging and an optional count.

use axum::Json;
use axum::extract::State;
use brokkr_api::page::{Page, Sort};
use brokkr_api::stacks::Stack;
use brokkr_api::{Labels, Selector};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::paging::{QueryParams, cursor, filtered_page, limit, selector};
use crate::store::stacks::{stack_labels, stack_list, stack_list_owed};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StackQuery {
    /// Only stacks with this text in their name.
    pub name: Option<String>,
    /// Only stacks with matching labels, such as `team=shop`.
    pub selector: Option<String>,
    #[param(inline)]
    pub sort: Option<Sort>,
    /// Return the total number, too.
    #[serde(default)]
    pub count: bool,
    /// List deleted stacks that agents still hold instead, oldest first; not with `sort` or `count`.
    #[serde(default)]
    pub deleted: bool,
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items; at most 500.
    pub limit: Option<u32>,
}

/// List stacks.
///
/// A page filtered by labels may be short or empty although more follow: read on while `next` is set.
#[utoipa::path(get, path = "/api/v1/stacks", tag = "stacks", params(StackQuery),
    responses((status = 200, body = Page<Stack>)))]
pub async fn list_stacks(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<StackQuery>,
) -> ApiResult<Json<Page<Stack>>> {
    let selector = selector(query.selector.as_deref())?;
    let matches_labels = |labels: &Labels| selector.as_ref().is_none_or(|selector| matches(selector, labels));
    let to_item = |stack: Stack| matches_labels(&stack.labels).then_some(stack);
    let (pool, project, name) = (&broker.pool, caller.project(), query.name.as_deref());
    if query.deleted {
        if query.sort.is_some() || query.count {
            return Err(ApiError::invalid_request("`deleted` cannot be combined with `sort` or `count`"));
        }
        cursor::<uuid::Uuid>(query.after.as_deref())?;
        let read = |after: Option<String>, most| async move {
            stack_list_owed(pool, project, name, after.as_deref(), most).await
        };
        let cursor_of = |stack: &Stack| stack.id.to_string();
        return filtered_page(query.after, limit(query.limit), selector.is_none(), read, cursor_of, to_item)
            .await
            .map(Json);
    }
    let sort = query.sort.unwrap_or_default();
    if !sort.is_by_name() {
        cursor::<uuid::Uuid>(query.after.as_deref())?;
    }
    let read = |after: Option<String>, most| async move {
        stack_list(pool, project, name, sort, after.as_deref(), most).await
    };
    let cursor_of =
        |stack: &Stack| if sort.is_by_name() { stack.name.to_string() } else { stack.id.to_string() };
    let mut page =
        filtered_page(query.after, limit(query.limit), selector.is_none(), read, cursor_of, to_item).await?;
    if query.count {
        let all = stack_labels(pool, project, name).await?;
        page.total = Some(all.iter().filter(|labels| matches_labels(labels)).count() as u64);
    }
    Ok(Json(page))
}

fn matches(selector: &Selector, labels: &Labels) -> bool {
    selector.holds(|key| labels.get(key).map(String::as_str))
}
