//! Lists living stacks: those that fit, in the order that is asked for, page by page, and how many they are. Or deleted
//! ones that agents still hold: what is owed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::{Page, Sort};
use brokkr_api::stacks::Stack;
use brokkr_api::{Labels, Selector};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::ApiError;
use crate::http::paging::{Asked, cursor, limit, selector, walk};
use crate::state::Broker;
use crate::store::stacks::{stack_labels, stack_list, stack_list_owed};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StackQuery {
    /// Only names with this in them.
    pub name: Option<String>,
    /// Only stacks whose own labels match, such as `team=shop`.
    pub selector: Option<String>,
    #[param(inline)]
    pub sort: Option<Sort>,
    /// Tell how many there are in all, too.
    #[serde(default)]
    pub count: bool,
    /// Deleted stacks of which agents still hold something, oldest first, instead of living ones; not with `sort` and
    /// `count`.
    #[serde(default)]
    pub deleted: bool,
    /// Where to read on: `next` of the page before.
    pub after: Option<String>,
    /// How many, at most; 500 is the most.
    pub limit: Option<u32>,
}

/// List the living stacks, or the deleted ones that agents still hold. A page that is filtered by labels may be short, or empty, and still have more behind it:
/// `next` tells.
#[utoipa::path(get, path = "/api/v1/stacks", tag = "stacks", params(StackQuery),
    responses((status = 200, body = Page<Stack>)))]
pub async fn list_stacks(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(query): Asked<StackQuery>,
) -> Result<Json<Page<Stack>>, ApiError> {
    let selector = selector(query.selector.as_deref())?;
    let fits = |labels: &Labels| selector.as_ref().is_none_or(|selector| matches(selector, labels));
    let fit = |stack: Stack| fits(&stack.labels).then_some(stack);
    let (pool, project, name) = (&broker.pool, caller.project(), query.name.as_deref());
    if query.deleted {
        if query.sort.is_some() || query.count {
            return Err(ApiError::unreadable("`deleted` goes with neither `sort` nor `count`"));
        }
        cursor::<uuid::Uuid>(query.after.as_deref())?;
        let read = |after: Option<String>, most| async move {
            stack_list_owed(pool, project, name, after.as_deref(), most).await
        };
        let place = |stack: &Stack| stack.id.to_string();
        return walk(query.after, limit(query.limit), selector.is_none(), read, place, fit).await.map(Json);
    }
    let sort = query.sort.unwrap_or_default();
    if !sort.is_by_name() {
        cursor::<uuid::Uuid>(query.after.as_deref())?;
    }
    let read = |after: Option<String>, most| async move {
        stack_list(pool, project, name, sort, after.as_deref(), most).await
    };
    let place = |stack: &Stack| if sort.is_by_name() { stack.name.to_string() } else { stack.id.to_string() };
    let mut page = walk(query.after, limit(query.limit), selector.is_none(), read, place, fit).await?;
    if query.count {
        let all = stack_labels(pool, project, name).await?;
        page.total = Some(all.iter().filter(|labels| fits(labels)).count() as u64);
    }
    Ok(Json(page))
}

fn matches(selector: &Selector, labels: &Labels) -> bool {
    selector.holds(|key| labels.get(key).map(String::as_str))
}
