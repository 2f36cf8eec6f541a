//! Every route, one line each, beside its permission: the one table from which the router, the OpenAPI
//! document and the test of wrong principals are all made.

mod examples;
pub mod openapi;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use brokkr_api::Problem;
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
use crate::http::guard::guard;
use crate::http::{
    agents, api_tokens, audit, barred_contents, deployment_objects, errors, events, frame, grants, health,
    join_tokens, projects, prune_approvals, selectors, stacks, streams, system, webhooks, whoami,
};
use crate::state::Broker;
use examples::Examples;

/// One line of the table.
pub struct Route {
    pub permission: Permission,
    /// `METHOD /path`, the same as at the handler; checked when the router is made.
    pub name: &'static str,
    handler: UtoipaMethodRouter<Arc<Broker>>,
}

#[rustfmt::skip]
pub fn table() -> Vec<Route> {
    let route = |permission, name, handler| Route { permission, name, handler };
    vec![
        route(Public,              "GET /livez",                                    routes!(health::livez)),
        route(Public,              "GET /readyz",                                   routes!(health::readyz)),
        route(Public,              "GET /api/v1/openapi.json",                      routes!(openapi::openapi)),
        route(Token(Viewer),       "GET /api/v1/whoami",                            routes!(whoami::whoami)),

        route(Token(Viewer),       "GET /api/v1/projects",                          routes!(projects::list::list_projects)),
        route(Token(Viewer),       "GET /api/v1/projects/{project}",                routes!(projects::get::get_project)),
        route(Token(Admin),        "PUT /api/v1/projects/{project}",                routes!(projects::put::put_project)),
        route(Token(Admin),        "DELETE /api/v1/projects/{project}",             routes!(projects::delete::delete_project)),

        route(Token(Owner),        "POST /api/v1/api-tokens",                       routes!(api_tokens::create::create_api_token)),
        route(Token(Owner),        "GET /api/v1/api-tokens",                        routes!(api_tokens::list::list_api_tokens)),
        route(Token(Owner),        "GET /api/v1/api-tokens/{token}",                routes!(api_tokens::get::get_api_token)),
        route(Token(Owner),        "DELETE /api/v1/api-tokens/{token}",             routes!(api_tokens::revoke::revoke_api_token)),
        route(Token(Owner),        "POST /api/v1/api-tokens/{token}/rotate",        routes!(api_tokens::rotate::rotate_api_token)),

        route(Token(Owner),        "GET /api/v1/audit",                             routes!(audit::list::list_audit)),
        route(Token(Owner),        "GET /api/v1/audit/head",                        routes!(audit::head::audit_head)),
        route(Token(Owner),        "GET /api/v1/audit/verify",                      routes!(audit::verify::verify_audit)),

        route(Token(Admin),        "GET /api/v1/join-tokens",                       routes!(join_tokens::list::list_join_tokens)),
        route(Token(Admin),        "DELETE /api/v1/join-tokens/{token}",            routes!(join_tokens::revoke::revoke_join_token)),
        route(Token(Admin),        "POST /api/v1/join-tokens",                      routes!(join_tokens::create::create_join_token)),
        route(Public,              "POST /api/v1/agents/register",                  routes!(agents::register::register_agent)),
        route(Agent,               "POST /api/v1/agents/{agent}/session",           routes!(agents::session::open_session)),
        route(Agent,               "PUT /api/v1/agents/{agent}/holds",              routes!(agents::holds::put_holds)),
        route(Agent,               "POST /api/v1/agents/{agent}/reports",           routes!(agents::reports::report)),
        route(AgentOr(Admin),      "GET /api/v1/agents/{agent}/target-state",       routes!(agents::target_state::target_state)),
        route(AgentOr(Viewer),     "GET /api/v1/agents/{agent}/targets",            routes!(agents::targets::list_targets)),
        route(AgentOr(Viewer),     "GET /api/v1/agents/{agent}",                    routes!(agents::get::get_agent)),
        route(Token(Admin),        "PATCH /api/v1/agents/{agent}",                  routes!(agents::patch::patch_agent)),
        route(Agent,               "POST /api/v1/agents/{agent}/keys",              routes!(agents::rotate_key::rotate_key)),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/rotation",          routes!(agents::rotation::ask_for_key)),
        route(Token(Admin),        "DELETE /api/v1/agents/{agent}/keys",            routes!(agents::revoke_keys::revoke_keys)),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/join-tokens",       routes!(agents::rejoin::rejoin_agent)),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/retirement",        routes!(agents::leave::retire_agent)),
        route(Token(Admin),        "POST /api/v1/agents/{agent}/abandonment",       routes!(agents::leave::abandon_agent)),
        route(Token(Viewer),       "GET /api/v1/agents",                            routes!(agents::list::list_agents)),

        route(Token(Viewer),       "GET /api/v1/stacks",                            routes!(stacks::list::list_stacks)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}",                    routes!(stacks::get::get_stack)),
        route(Token(Deployer),     "PUT /api/v1/stacks/{stack}",                    routes!(stacks::put::put_stack)),
        route(Token(Deployer),     "DELETE /api/v1/stacks/{stack}",                 routes!(stacks::delete::delete_stack)),
        route(Token(Deployer),     "PUT /api/v1/stacks/{stack}/targets",            routes!(stacks::put_targets::put_targets)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/status",             routes!(stacks::status::stack_status)),

        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/deployment-objects", routes!(deployment_objects::submit::submit_deployment_object)),
        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/roll-back",         routes!(stacks::roll_back::roll_back)),
        route(Token(Deployer),     "POST /api/v1/stacks/{stack}/prune-approvals",   routes!(prune_approvals::create::approve_prune)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/prune-approvals",    routes!(prune_approvals::list::list_prune_approvals)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/diff",               routes!(deployment_objects::diff::diff_deployment_objects)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/barred-contents",    routes!(barred_contents::list::list_barred_contents)),
        route(Token(Deployer),     "DELETE /api/v1/stacks/{stack}/barred-contents/{checksum}", routes!(barred_contents::delete::delete_barred_content)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/deployment-objects", routes!(deployment_objects::list::list_deployment_objects)),
        route(AnyAgentOr(Viewer),  "GET /api/v1/deployment-objects/{sequence_id}",  routes!(deployment_objects::content::deployment_object_content)),

        route(Token(Admin),        "GET /api/v1/grants",                            routes!(grants::list::list_grants)),
        route(Token(Admin),        "GET /api/v1/grants/{grant}",                    routes!(grants::get::get_grant)),
        route(Token(Admin),        "PUT /api/v1/grants/{grant}",                    routes!(grants::put::put_grant)),
        route(Token(Admin),        "DELETE /api/v1/grants/{grant}",                 routes!(grants::delete::delete_grant)),
        route(Token(Viewer),       "GET /api/v1/selectors/preview",                 routes!(selectors::preview::preview_selector)),

        route(Token(Admin),        "GET /api/v1/system",                            routes!(system::get::get_system)),
        route(Token(Admin),        "GET /api/v1/system/ahead",                      routes!(system::ahead::list_ahead)),
        route(Token(Admin),        "GET /api/v1/system/unknown",                    routes!(system::unknown::list_unknown)),
        route(Token(Admin),        "POST /api/v1/system/stacks/{stack}/settlement", routes!(system::settle::settle_stack)),
        route(Agent,               "GET /api/v1/agents/{agent}/wanted-contents",    routes!(agents::wanted_contents::list_wanted_contents)),
        route(Agent,               "PUT /api/v1/agents/{agent}/wanted-contents/{stack}", routes!(agents::hand_over::hand_over_content)),
        route(Agent,               "DELETE /api/v1/agents/{agent}/wanted-contents/{stack}", routes!(agents::hand_over_not::refuse_content)),

        route(Token(Viewer),       "GET /api/v1/events",                            routes!(events::list::list_events)),

        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/status/summary",     routes!(stacks::summary::stack_summary)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/errors",             routes!(errors::list::list_stack_errors)),
        route(Token(Viewer),       "GET /api/v1/errors",                            routes!(errors::list::list_errors)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/agents/{agent}/why", routes!(stacks::why::stack_why)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/agents/{agent}/hops", routes!(stacks::why::stack_hops)),
        route(Token(Viewer),       "GET /api/v1/agents/{agent}/why",                routes!(agents::why::agent_why)),
        route(Token(Viewer),       "GET /api/v1/events/stream",                     routes!(streams::events::stream_events)),
        route(Token(Viewer),       "GET /api/v1/stacks/{stack}/status/stream",      routes!(streams::status::stream_status)),

        route(Token(Viewer),       "GET /api/v1/webhooks",                          routes!(webhooks::list::list_webhooks)),
        route(Token(Owner),        "POST /api/v1/webhooks",                         routes!(webhooks::create::create_webhook)),
        route(Token(Viewer),       "GET /api/v1/webhooks/{webhook}",                routes!(webhooks::get::get_webhook)),
        route(Token(Owner),        "PATCH /api/v1/webhooks/{webhook}",              routes!(webhooks::patch::patch_webhook)),
        route(Token(Owner),        "DELETE /api/v1/webhooks/{webhook}",             routes!(webhooks::delete::delete_webhook)),
        route(Token(Owner),        "POST /api/v1/webhooks/{webhook}/rotate-secret", routes!(webhooks::rotate_secret::rotate_webhook_secret)),
        route(Token(Owner),        "POST /api/v1/webhooks/{webhook}/test",          routes!(webhooks::test::test_webhook)),
        route(Token(Viewer),       "GET /api/v1/webhooks/{webhook}/deliveries",     routes!(webhooks::deliveries::list_webhook_deliveries)),
        route(Token(Owner),        "POST /api/v1/webhooks/{webhook}/deliveries/{delivery}/resend", routes!(webhooks::resend::resend_webhook_delivery)),
    ]
}

/// The router that serves: every route inside its guard, all of it inside the frame.
pub fn router(broker: Arc<Broker>) -> Router {
    let mut router: Router<Arc<Broker>> = Router::new();
    for Route { permission, name, handler: (_, paths, methods) } in table() {
        let (path, _) = only(&paths, name);
        // Inside the guard: it has to be known who calls.
        let methods = methods.route_layer(from_fn_with_state(Arc::clone(&broker), system::hold::unless_held));
        let guarded = methods
            .route_layer(from_fn_with_state((Arc::clone(&broker), permission, Bucket::of(name)), guard));
        router = router.route(&path, guarded);
    }
    router
        .fallback(frame::unknown_route)
        .method_not_allowed_fallback(frame::unknown_method)
        .layer(CompressionLayer::new())
        .layer(CatchPanicLayer::custom(frame::panicked))
        .layer(from_fn_with_state(Arc::clone(&broker), frame::frame))
        .with_state(broker)
}

/// The description of the table.
pub fn openapi() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Brokkr broker")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Holds what should run, and tells each agent. Errors are problem documents (RFC 9457).",
        ))
        .build();
    let mut router: OpenApiRouter<Arc<Broker>> =
        OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build());
    let examples = Examples::recorded();
    for Route { permission, name, handler: (schemas, mut paths, methods) } in table() {
        let _ = only(&paths, name);
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
    components.schemas.extend(schemas);
    document
}

/// As it is committed to `docs/openapi.json`.
#[must_use]
pub fn openapi_json() -> String {
    openapi().to_pretty_json().unwrap_or_default()
}

/// Says who may call, and that errors are problems.
fn describe(item: &mut PathItem, permission: Permission) {
    let problem = ResponseBuilder::new()
        .description("A problem")
        .content(
            brokkr_api::protocol::PROBLEM_MEDIA_TYPE,
            ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build(),
        )
        .build();
    for operation in operations(item) {
        let before = operation.description.take().map(|text| format!("{text}\n\n")).unwrap_or_default();
        operation.description = Some(format!("{before}Open to: {permission}."));
        operation.responses.responses.insert("default".to_owned(), RefOr::T(problem.clone()));
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten()
}

/// The path and method of a handler, which the table has to name.
fn only(paths: &utoipa::openapi::path::Paths, name: &str) -> (String, HttpMethod) {
    let (path, item) = paths.paths.iter().next().expect("a handler has a path");
    let methods = [
        (HttpMethod::Get, "GET", item.get.is_some()),
        (HttpMethod::Put, "PUT", item.put.is_some()),
        (HttpMethod::Post, "POST", item.post.is_some()),
        (HttpMethod::Patch, "PATCH", item.patch.is_some()),
        (HttpMethod::Delete, "DELETE", item.delete.is_some()),
    ];
    let (method, word, _) = methods.into_iter().find(|(_, _, there)| *there).expect("a handler has a method");
    assert_eq!(name, format!("{word} {path}"), "the table and the handler name the same route");
    (path.clone(), method)
}

#[cfg(test)]
mod tests {
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
}
