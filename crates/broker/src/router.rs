//! The table of routes: one line each, with its permission and its largest body. The router, the OpenAPI document and
//! the permission tests derive from it.

mod examples;
pub mod openapi;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use brokkr_api::Problem;
use brokkr_api::fleet::FleetChanges;
use brokkr_api::protocol::SUBMISSION_BYTES;
use brokkr_api::report::BATCH_BYTES;
use brokkr_api::tokens::Role::{Admin, Deployer, Owner, Viewer};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use utoipa::openapi::path::{HttpMethod, Operation};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::access::Permission::{self, Agent, AgentOr, AnyAgentOr, Public, Token};
use crate::access::limits::Bucket;
use crate::http::body::BodyLimit;
use crate::http::guard::{RouteRules, guard};
use crate::http::{
    agent_upgrades, agents, api_tokens, audit, barred_contents, deployment_objects, errors, events, fleet,
    grants, health, health_rules, join_tokens, labels, middleware, projects, prune_approvals, rollouts,
    search, selectors, sessions, stacks, streams, suspensions, system, ui, webhooks, windows,
};
use crate::state::Broker;
use examples::Examples;

const KIB: usize = 1024;
/// A key, a token and a key, a step of an upgrade, or nothing. The agent's requests before its first poll fit, and so does every
/// registration.
const TINY: BodyLimit = BodyLimit(4 * KIB);
/// Most requests have a few fields.
const SMALL: BodyLimit = BodyLimit(64 * KIB);
/// Requests with 256 KiB of annotations, 10,000 targets, or a grant with 1,000 namespaces and kinds.
const LARGE: BodyLimit = BodyLimit(1024 * KIB);
/// 10,000 stacks with the longest names.
const HOLDS: BodyLimit = BodyLimit(5 * 1024 * KIB);
const REPORTS: BodyLimit = BodyLimit(BATCH_BYTES);
const SUBMISSION: BodyLimit = BodyLimit(SUBMISSION_BYTES);

/// One row of the table.
pub struct Route {
    pub permission: Permission,
    /// `METHOD /path`, as declared by the handler; checked when the router is built.
    pub name: &'static str,
    /// The largest body. [`SMALL`], unless the row says otherwise; requests that only read have none.
    pub body: BodyLimit,
    handler: UtoipaMethodRouter<Arc<Broker>>,
}

impl Route {
    fn body(self, body: BodyLimit) -> Self {
        Self { body, ..self }
    }
}

#[rustfmt::skip]
pub fn table() -> Vec<Route> {
    let route = |permission, name: &'static str, handler| {
        let body = if name.starts_with("GET ") { BodyLimit(0) } else { SMALL };
        Route { permission, name, body, handler }
    };
    vec![
        route(Public,              "GET /livez",                                    routes!(health::livez)),
        route(Public,              "GET /readyz",                                   routes!(health::readyz)),
        route(Public,              "GET /api/v1/openapi.json",                      routes!(openapi::openapi)),
        route(Token(Viewer),       "GET /api/v1/whoami",                            routes!(api_tokens::whoami)),

        route(Token(Viewer),       "GET /api/v1/projects",                          routes!(projects::list_projects)),
        route(Token(Viewer),       "GET /api/v1/projects/{project}",                routes!(projects::get_project)),
        route(Token(Admin),        "PUT /api/v1/projects/{project}",                routes!(projects::put_project)),
        route(Token(Admin),        "DELETE /api/v1/projects/{project}",             routes!(projects::delete_project)),

        route(Token(Owner),        "POST /api/v1/api-tokens",                       routes!(api_tokens::create_api_token)),
        route(Token(Owner),        "GET /api/v1/api-tokens",                        routes!(api_tokens::list_api_tokens)),
        route(Token(Owner),        "GET /api/v1/api-tokens/{token}",                routes!(api_tokens::get_api_token)),
        route(Token(Owner),        "DELETE /api/v1/api-tokens/{token}",             routes!(api_tokens::revoke_api_token)),
        route(Token(Owner),        "POST /api/v1/api-tokens/{token}/rotate",        routes!(api_tokens::rotate_api_token)),

        route(Token(Viewer),       "POST /api/v1/sessions",                         routes!(sessions::open_console_session)).body(TINY),
        route(Token(Viewer),       "GET /api/v1/sessions",                          routes!(sessions::list_console_sessions)),
        route(Token(Viewer),       "GET /api/v1/sessions/{session}",                routes!(sessions::get_console_session)),
        route(Token(Viewer),       "DELETE /api/v1/sessions/{session}",             routes!(sessions::close_console_session)),

        route(Token(Owner),        "GET /api/v1/audit",                             routes!(audit::list_audit)),
        route(Token(Owner),        "GET /api/v1/audit/head",                        routes!(audit::audit_head)),
        route(Token(Owner),        "GET /api/v1/audit/verify",                      routes!(audit::verify_audit)),

        route(Token(Admin),        "GET /api/v1/join-tokens",                       routes!(join_tokens::list_join_tokens)),
        route(Token(Admin),        "DELETE /api/v1/join-tokens/{token}",            routes!(join_tokens::revoke_join_token)),
        route(Token(Admin),        "POST /api/v1/join-tokens",                      routes!(join_tokens::create_join_token)),
        route(Public,              "POST /api/v1/agents/register",                  routes!(agents::register::register_agent)).body(TINY),
        route(Agent,               "POST /api/v1/agents/{agent}/session",           routes!(agents::session::open_session)).body(TINY),
        route(Agent,               "PUT /api/v1/agents/{agent}/holds",              routes!(agents::holds::put_holds)).body(HOLDS),
        route(Agent,               "POST /api/v1/agents/{agent}/reports",           routes!(agents::reports::report)).body(REPORTS),
        route(AgentOr(Admin),      "GET /api/v1/agents/{agent}/target-state",       routes!(agents::target_state::target_state)),
        route(AgentOr(Viewer),     "GET /api/v1/agents/{agent}/targets",            routes!(agents::targets::list_targets)),
        route(AgentOr(Viewer),     "GET /api/v1/agents/{agent}",                    routes!(agents::get_agent)),
        route(Token(Admin),        "PATCH /api/v1/agents/{agent}",                  routes!(agents::patch_agent)).body(LARGE),
        route(Token(Admin),        "DELETE /api/v1/agents/{agent}",                 routes!(agents::retirement::delete_agent)),
        route(Agent,               "POST /api/v1/agents/{agent}/keys",              routes!(agents::keys::rotate_key)).body(TINY),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/rotation",          routes!(agents::keys::request_key_rotation)),
        route(Token(Admin),        "DELETE /api/v1/agents/{agent}/keys",            routes!(agents::keys::revoke_keys)),
        route(Agent,               "GET /api/v1/agents/{agent}/upgrade",            routes!(agents::upgrade::agent_upgrade)),
        route(Agent,               "POST /api/v1/agents/{agent}/upgrade",           routes!(agents::upgrade::report_agent_upgrade)).body(TINY),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/join-tokens",       routes!(agents::register::rejoin_agent)),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/retirement",        routes!(agents::retirement::retire_agent)),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/abandonment",       routes!(agents::retirement::abandon_agent)),
        route(Token(Viewer),       "GET /api/v1/agents",                            routes!(agents::list::list_agents)),

        route(Token(Admin),        "POST /api/v1/agent-upgrades",                   routes!(agent_upgrades::begin_agent_upgrade)),
        route(Token(Admin),        "GET /api/v1/agent-upgrades",                    routes!(agent_upgrades::list_agent_upgrades)),
        route(Token(Admin),        "GET /api/v1/agent-upgrades/{upgrade}",          routes!(agent_upgrades::get_agent_upgrade)),
        route(Token(Admin),        "GET /api/v1/agent-upgrades/{upgrade}/agents",   routes!(agent_upgrades::list_upgraded_agents)),
        route(Token(Admin),        "POST /api/v1/agent-upgrades/{upgrade}/{command}", routes!(agent_upgrades::command_agent_upgrade)),

        route(Token(Viewer),       "GET /api/v1/agents/{agent}/stacks",             routes!(agents::stacks::list_agent_stacks)),
        route(Token(Viewer),       "GET /api/v1/fleet/summary",                     routes!(fleet::fleet_summary)),
        route(Token(Viewer),       "GET /api/v1/fleet/matrix",                      routes!(fleet::fleet_matrix)),
        route(Token(Viewer),       "GET /api/v1/fleet/stream",                      routes!(fleet::stream::stream_fleet)),
        route(Token(Viewer),       "GET /api/v1/labels",                            routes!(labels::list_labels)),
        route(Token(Viewer),       "GET /api/v1/search",                            routes!(search::search)),

        route(Token(Viewer),       "GET /api/v1/stacks",                            routes!(stacks::list::list_stacks)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}",                    routes!(stacks::get_stack)),
        route(Token(Deployer),     "PUT /api/v1/stacks/{stack}",                    routes!(stacks::put_stack)).body(LARGE),
        route(Token(Deployer),     "DELETE /api/v1/stacks/{stack}",                 routes!(stacks::delete_stack)),
        route(Token(Deployer),     "PUT /api/v1/stacks/{stack}/targets",            routes!(stacks::targets::put_targets)).body(LARGE),
        route(Token(Admin),        "POST /api/v1/stacks/{stack}/purge",             routes!(stacks::purge::purge_stack)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/status",             routes!(stacks::status::stack_status)),

        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/deployment-objects", routes!(deployment_objects::submit_deployment_object)).body(SUBMISSION),
        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/roll-back",         routes!(stacks::rollback::roll_back)),
        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/rerun",             routes!(stacks::rerun::rerun_jobs)),
        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/prune-approvals",   routes!(prune_approvals::approve_prune)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/prune-approvals",    routes!(prune_approvals::list_prune_approvals)),
        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/suspensions",       routes!(suspensions::suspend_stack)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/suspensions",        routes!(suspensions::list_suspensions)),
        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/resume",            routes!(suspensions::resume_stack)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/diff",               routes!(deployment_objects::diff::diff_deployment_objects)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/barred-contents",    routes!(barred_contents::list_barred_contents)),
        route(Token(Deployer),     "DELETE /api/v1/stacks/{stack}/barred-contents/{checksum}", routes!(barred_contents::delete_barred_content)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/deployment-objects", routes!(deployment_objects::list_deployment_objects)),
        route(AnyAgentOr(Viewer),  "GET /api/v1/deployment-objects/{sequence_id}",  routes!(deployment_objects::deployment_object_content)),

        route(Token(Viewer),       "GET /api/v1/rollouts",                          routes!(rollouts::list_rollouts)),
        route(Token(Viewer),       "GET /api/v1/rollouts/{sequence_id}",            routes!(rollouts::get_rollout)),
        route(Token(Viewer),       "GET /api/v1/rollouts/{sequence_id}/decisions",  routes!(rollouts::decisions::list_rollout_decisions)),
        route(Token(Deployer),     "POST /api/v1/rollouts/{sequence_id}/{command}", routes!(rollouts::command_rollout)),

        route(Token(Viewer),       "GET /api/v1/rollout-policy",                    routes!(rollouts::policies::get_rollout_policy)),
        route(Token(Admin),        "PUT /api/v1/rollout-policy",                    routes!(rollouts::policies::put_rollout_policy)),
        route(Token(Owner),        "PUT /api/v1/projects/{project}/rollout-policy", routes!(rollouts::policies::put_project_rollout_policy)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/rollout-policy",     routes!(rollouts::policies::get_stack_rollout_policy)),
        route(Token(Owner),        "PUT /api/v1/stacks/{stack}/rollout-policy",     routes!(rollouts::policies::put_stack_rollout_policy)),

        route(Token(Viewer),       "GET /api/v1/health-rules",                      routes!(health_rules::get_health_rules)),
        route(Token(Admin),        "PUT /api/v1/health-rules",                      routes!(health_rules::put_health_rules)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/health-rules",       routes!(health_rules::get_stack_health_rules)),
        route(Token(Owner),        "PUT /api/v1/stacks/{stack}/health-rules",       routes!(health_rules::put_stack_health_rules)),
        route(Agent,               "GET /api/v1/agents/{agent}/health-rules/{checksum}", routes!(health_rules::agent_health_rules)),

        route(Token(Admin),        "GET /api/v1/grants",                            routes!(grants::list_grants)),
        route(Token(Admin),        "GET /api/v1/grants/{grant}",                    routes!(grants::get_grant)),
        route(Token(Admin),        "PUT /api/v1/grants/{grant}",                    routes!(grants::put_grant)).body(LARGE),
        route(Token(Admin),        "DELETE /api/v1/grants/{grant}",                 routes!(grants::delete_grant)),
        route(Token(Viewer),       "GET /api/v1/windows",                           routes!(windows::list_windows)),
        route(Token(Viewer),       "GET /api/v1/windows/{window}",                  routes!(windows::get_window)),
        route(Token(Admin),        "PUT /api/v1/windows/{window}",                  routes!(windows::put_window)),
        route(Token(Admin),        "DELETE /api/v1/windows/{window}",               routes!(windows::delete_window)),
        route(Token(Viewer),       "GET /api/v1/selectors/preview",                 routes!(selectors::preview_selector)),

        route(Token(Admin),        "GET /api/v1/system",                            routes!(system::get_system)),
        route(Token(Admin),        "POST /api/v1/system/hold/lift",                 routes!(system::hold::lift_hold)),
        route(Token(Admin),        "GET /api/v1/system/ahead",                      routes!(system::list_ahead)),
        route(Token(Admin),        "GET /api/v1/system/unknown",                    routes!(system::list_unknown)),
        route(Token(Admin),        "GET /api/v1/system/unconfirmed",                routes!(system::list_unconfirmed)),
        route(Token(Admin),        "GET /api/v1/system/stacks/{stack}/holders",    routes!(system::list_holders)),
        route(Token(Admin),        "POST /api/v1/system/stacks/{stack}/settlement", routes!(system::settle_stack)),

        route(Token(Viewer),       "GET /api/v1/events",                            routes!(events::list_events)),

        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/status/summary",     routes!(stacks::status::summary::stack_summary)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/errors",             routes!(errors::list_stack_errors)),
        route(Token(Viewer),       "GET /api/v1/errors",                            routes!(errors::list_errors)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/agents/{agent}/why", routes!(stacks::why::stack_why)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/agents/{agent}/hops", routes!(stacks::why::stack_hops)),
        route(Token(Viewer),       "GET /api/v1/agents/{agent}/why",                routes!(agents::why::agent_why)),
        route(Token(Viewer),       "GET /api/v1/events/stream",                     routes!(streams::stream_events)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/status/stream",      routes!(streams::stream_status)),

        route(Token(Viewer),       "GET /api/v1/webhooks",                          routes!(webhooks::list_webhooks)),
        route(Token(Owner),        "POST /api/v1/webhooks",                         routes!(webhooks::create_webhook)),
        route(Token(Viewer),       "GET /api/v1/webhooks/{webhook}",                routes!(webhooks::get_webhook)),
        route(Token(Owner),        "PATCH /api/v1/webhooks/{webhook}",              routes!(webhooks::patch_webhook)),
        route(Token(Owner),        "DELETE /api/v1/webhooks/{webhook}",             routes!(webhooks::delete_webhook)),
        route(Token(Owner),        "POST /api/v1/webhooks/{webhook}/rotate-secret", routes!(webhooks::rotate_webhook_secret)),
        route(Token(Owner),        "POST /api/v1/webhooks/{webhook}/test",          routes!(webhooks::deliveries::test_webhook)),
        route(Token(Viewer),       "GET /api/v1/webhooks/{webhook}/deliveries",     routes!(webhooks::deliveries::list_webhook_deliveries)),
        route(Token(Owner),        "POST /api/v1/webhooks/{webhook}/deliveries/{delivery}/resend", routes!(webhooks::deliveries::resend_webhook_delivery)),
    ]
}

/// Returns whether a session may use the route only for a while after the sign-in: it changes what only admins may change, or issues a
/// credential.
fn needs_recent_sign_in(permission: Permission, name: &str) -> bool {
    let changes = !name.starts_with("GET ");
    changes && (permission == Token(Admin) || name.starts_with("POST /api/v1/api-tokens"))
}

/// Returns the router that serves: every route inside its guard, all routes inside the outermost middleware.
pub fn router(broker: Arc<Broker>) -> Router {
    let mut router: Router<Arc<Broker>> = Router::new();
    for Route { permission, name, body, handler: (_, paths, methods) } in table() {
        let (path, _) = checked_path(&paths, name);
        // Inside the guard, because it needs to know the caller.
        let methods =
            methods.route_layer(from_fn_with_state(Arc::clone(&broker), system::hold::refuse_while_on_hold));
        let needs_recent_sign_in = needs_recent_sign_in(permission, name);
        let rules = RouteRules { permission, bucket: Bucket::of(name), body, needs_recent_sign_in };
        let guarded = methods.route_layer(from_fn_with_state((Arc::clone(&broker), rules), guard));
        router = router.route(&path, guarded);
    }
    router
        .fallback(middleware::unknown_route)
        .method_not_allowed_fallback(middleware::unknown_method)
        .layer(CompressionLayer::new())
        // Outside of the layer above, because its files are compressed already.
        .merge(console())
        .layer(CatchPanicLayer::custom(middleware::panicked))
        .layer(from_fn_with_state(Arc::clone(&broker), middleware::request_scope))
        .with_state(broker)
}

/// Returns the routes of the console. They are not in the table, which describes the API.
fn console() -> Router<Arc<Broker>> {
    let to_console = || get(ui::to_console).fallback(middleware::unknown_method);
    let console = || get(ui::console).fallback(middleware::unknown_method);
    Router::new()
        .route("/", to_console())
        .route("/ui", to_console())
        .route(ui::CONSOLE, console())
        .route("/ui/{*path}", console())
}

/// Returns the OpenAPI document of the table.
pub fn openapi() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Brokkr broker")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Stores the desired state and delivers it to agents. Errors are problem documents (RFC 9457).",
        ))
        .build();
    let mut router: OpenApiRouter<Arc<Broker>> =
        OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build());
    let examples = Examples::recorded();
    for Route { permission, name, handler: (schemas, mut paths, methods), .. } in table() {
        let _ = checked_path(&paths, name);
        for item in paths.paths.values_mut() {
            describe(item, permission);
            operations(item).for_each(|operation| examples.show(name, operation));
        }
        router = router.routes((schemas, paths, methods));
    }
    let mut document = router.into_openapi();
    let components = document.components.get_or_insert_default();
    let mut schemas = vec![(Problem::name().into_owned(), examples.of_problem(Problem::schema()))];
    Problem::schemas(&mut schemas);
    // The messages of a stream are not the body of a response.
    schemas.push((FleetChanges::name().into_owned(), FleetChanges::schema()));
    FleetChanges::schemas(&mut schemas);
    components.schemas.extend(schemas);
    document
}

/// Returns the document as it is committed to `docs/openapi.json`.
#[must_use]
pub fn openapi_json() -> String {
    openapi().to_pretty_json().unwrap_or_default()
}

/// Documents who may call, and that errors are problem documents.
fn describe(item: &mut PathItem, permission: Permission) {
    let problem = ResponseBuilder::new()
        .description("Problem document")
        .content(
            brokkr_api::protocol::PROBLEM_MEDIA_TYPE,
            ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build(),
        )
        .build();
    for operation in operations(item) {
        let before = operation.description.take().map(|text| format!("{text}\n\n")).unwrap_or_default();
        operation.description = Some(format!("{before}Permission: {permission}."));
        operation.responses.responses.insert("default".to_owned(), RefOr::T(problem.clone()));
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten()
}

/// Returns the path and method of a handler, and checks them against the table.
fn checked_path(paths: &utoipa::openapi::path::Paths, name: &str) -> (String, HttpMethod) {
    let (path, item) = paths.paths.iter().next().expect("a handler has a path");
    let methods = [
        (HttpMethod::Get, "GET", item.get.is_some()),
        (HttpMethod::Put, "PUT", item.put.is_some()),
        (HttpMethod::Post, "POST", item.post.is_some()),
        (HttpMethod::Patch, "PATCH", item.patch.is_some()),
        (HttpMethod::Delete, "DELETE", item.delete.is_some()),
    ];
    let (method, word, _) =
        methods.into_iter().find(|(_, _, exists)| *exists).expect("a handler has a method");
    assert_eq!(name, format!("{word} {path}"), "the table and the handler name the same route");
    (path.clone(), method)
}

#[cfg(test)]
mod tests {
    use brokkr_api::agents::{HeldStack, Holds};
    use brokkr_api::ids::Checksum;
    use brokkr_api::names::ANNOTATION_BYTES;
    use brokkr_api::stacks::StackTargets;
    use brokkr_api::{SequenceId, StackId};

    use super::*;
    use crate::domain::hold::WRITABLE_ON_HOLD;

    #[test]
    fn every_noun_that_stays_writable_on_hold_has_a_route() {
        let routes = table();
        for noun in WRITABLE_ON_HOLD {
            let path = format!(" /api/v1/{noun}");
            assert!(routes.iter().any(|route| route.name.contains(&path)), "no route for {noun}");
        }
    }

    #[test]
    fn the_largest_honest_bodies_are_below_the_limits() {
        let name = "n".repeat(63);
        let held = HeldStack {
            stack_id: StackId::generate(),
            project: name.clone(),
            stack_name: name.clone(),
            sequence_id: SequenceId(i64::MAX),
            checksum: Some(Checksum::of(b"content")),
            removing: false,
        };
        let holds = Holds { stacks: vec![held.stack_id; 10_000], held: vec![held; 10_000] };
        let targets = StackTargets { agents: vec![name; 10_000], selectors: Vec::new() };
        let size = |body: Result<Vec<u8>, serde_json::Error>| body.expect("it is JSON").len();
        assert!(size(serde_json::to_vec(&holds)) < HOLDS.0);
        assert!(size(serde_json::to_vec(&targets)) < LARGE.0);
        const { assert!(2 * ANNOTATION_BYTES < LARGE.0, "even if half of it has to be escaped") };
    }

    #[test]
    fn callers_without_a_credential_can_send_only_tiny_bodies() {
        for route in table().iter().filter(|route| route.permission == Public) {
            assert!(route.body.0 <= TINY.0, "{}", route.name);
        }
    }
}
