//! Generates pages of `docs/reference`: the program, routes, permissions, events and error codes. A page that differs from
//! the committed one fails its test; `cargo xtask docs` writes them.

use std::collections::BTreeMap;

use brokkr_api::ErrorCode;
use brokkr_api::protocol::PROBLEM_MEDIA_TYPE;
use brokkr_api::tokens::Role;
use brokkr_api::webhooks::WebhookEvent;
use brokkr_broker::access::Permission;
use brokkr_broker::args::Args;
use brokkr_broker::router;
use brokkr_reference::{check, indented, made_from, plain, program, table, to_heading, variants};
use clap::CommandFactory as _;
use serde_json::Value;

const REPORT: &str = include_str!("../../../api/src/report.rs");
const STATUS: &str = include_str!("../../../api/src/status.rs");
const TOKENS: &str = include_str!("../../../api/src/tokens.rs");
const WEBHOOKS: &str = include_str!("../../../api/src/webhooks.rs");
const WHY: &str = include_str!("../../../api/src/why.rs");

#[test]
fn the_reference_page_of_the_broker_is_current() {
    let introduction = made_from("crates/broker/src/args.rs")
        + "# brokkr-broker\n\nThe server. Settings of `serve` can also be in a file. [Configuration](../configuration.md) explains \
           precedence, health checks and shutdown.\n";
    check("broker.md", &program(Args::command(), &introduction));
}

// ── routes ──

#[test]
fn the_reference_page_of_the_routes_is_current() {
    let document: Value = serde_json::from_str(&router::openapi_json()).expect("it is JSON");
    let mut by_subject: BTreeMap<String, String> = BTreeMap::new();
    let mut listed = Vec::new();
    for route in router::table() {
        let (method, path) = route.name.split_once(' ').expect("METHOD /path");
        let operation = &document["paths"][path][method.to_lowercase()];
        let subject = operation["tags"][0].as_str().unwrap_or("other").to_owned();
        let summary = one_line(operation["summary"].as_str().unwrap_or_default());
        let purpose =
            summary.split_once(". ").map_or(summary.as_str(), |(first, _)| first).trim_end_matches('.');
        listed.push([to_heading(route.name), plain(purpose), route.permission.to_string()]);
        by_subject.entry(subject).or_default().push_str(&described(route.name, operation));
    }
    listed.sort();
    let mut text = made_from("docs/openapi.json") + INTRODUCTION_OF_ROUTES;
    text.push_str(&format!("{}\n", table(["route", "purpose", "permission"], listed)));
    for (subject, routes) in by_subject {
        text.push_str(&format!("## {}\n\n{routes}", capital(&subject)));
    }
    check("rest.md", &text);
}

const INTRODUCTION_OF_ROUTES: &str = "# REST API\n\n\
    The command line uses only these routes. The OpenAPI document is [openapi.json](../openapi.json); a broker serves its \
    own at `/api/v1/openapi.json`. The examples are recorded from a real broker.\n\n\
    - Send the token as `Authorization: Bearer …`. Admins and auditors select a project with the header `brokkr-project`; \
    everyone else acts in the project of their token.\n\
    - A browser exchanges its token for a cookie, with `POST /api/v1/sessions`: [web console](../how-to/console.md).\n\
    - Errors are problem documents (RFC 9457) with a `code`: [error codes](errors.md).\n\
    - A write with the header `Idempotency-Key` can be repeated: the same key with the same request returns the first result.\n\
    - Lists have `items` and `next`; pass `next` as `?after=` to read on. A page has at most 500 items.\n\
    - Changes accept `If-Match` with the `ETag` of a read; if the resource was changed since, they are refused (BRK2012).\n\n";

fn described(name: &str, operation: &Value) -> String {
    let summary = operation["summary"].as_str().unwrap_or_default();
    let mut text = format!("### `{name}`\n\n{}\n\n", plain(&one_line(summary)));
    // The last paragraph of a description states the permission.
    for paragraph in operation["description"].as_str().unwrap_or_default().split("\n\n") {
        text.push_str(&format!("{}\n\n", plain(&one_line(paragraph))));
    }
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter["in"] != "path") {
        let kind = if parameter["in"] == "header" { "header " } else { "" };
        let description = parameter["description"].as_str().unwrap_or_default();
        text.push_str(&format!(
            "- {kind}`{}`: {}\n",
            parameter["name"].as_str().unwrap_or_default(),
            plain(&one_line(description))
        ));
    }
    if text.ends_with('\n') && !text.ends_with("\n\n") {
        text.push('\n');
    }
    if let Some(asked) = example(&operation["requestBody"]) {
        text.push_str(&format!("Request:\n\n{}\n", indented(&asked)));
    }
    let answers = operation["responses"].as_object().into_iter().flatten();
    let answered = answers.filter(|(status, _)| status.starts_with('2'));
    if let Some((status, shown)) =
        answered.filter_map(|(status, answer)| Some((status, example(answer)?))).next()
    {
        text.push_str(&format!("Response {status}:\n\n{}\n", indented(&shown)));
    }
    text
}

/// Returns the example of a body, truncated if it is long.
fn example(body: &Value) -> Option<String> {
    const LONGEST: usize = 30;
    let content = body["content"].as_object()?;
    let (_, one) =
        content.iter().find(|(media, body)| *media != PROBLEM_MEDIA_TYPE && body.get("example").is_some())?;
    let text = match &one["example"] {
        Value::String(text) => text.trim_end().to_owned(),
        other => serde_json::to_string_pretty(other).ok()?,
    };
    let lines: Vec<&str> = text.lines().collect();
    let cut = lines.len() > LONGEST;
    let shown = lines[..lines.len().min(LONGEST)].join("\n");
    Some(if cut { format!("{shown}\n…") } else { shown })
}

// ── permissions ──

#[test]
fn the_reference_page_of_permissions_is_current() {
    let roles = [Role::Viewer, Role::Deployer, Role::Owner, Role::Auditor, Role::Admin];
    let mark = |yes: bool| if yes { "yes" } else { "" }.to_owned();
    let routes = router::table();
    let rows = routes.iter().map(|route| {
        let may = |role: Role| {
            mark(match route.permission {
                Permission::Public => true,
                Permission::Agent => false,
                Permission::Token(wanted) => {
                    role.includes(wanted) || (role == Role::Auditor && reads(route.name))
                }
                Permission::AgentOr(wanted) | Permission::AnyAgentOr(wanted) => role.includes(wanted),
            })
        };
        let agent = match route.permission {
            Permission::Public => "yes",
            Permission::Agent | Permission::AgentOr(_) => "itself",
            Permission::AnyAgentOr(_) => "if affected",
            Permission::Token(_) => "",
        };
        let [viewer, deployer, owner, auditor, admin] = roles.map(may);
        [format!("`{}`", route.name), viewer, deployer, owner, auditor, admin, agent.to_owned()]
    });
    let mut text = made_from("crates/broker/src/router.rs and crates/api/src/tokens.rs")
        + "# Permissions\n\nA token has one role. Viewers, deployers and owners act in the project of their token; admins and \
           auditors in any. Everyone else gets 404 for other projects' resources.\n\n";
    let described = variants(TOKENS, "Role").into_iter();
    text += &table(
        ["role", ""],
        described.map(|one| [format!("`{}`", one.name.to_lowercase()), plain(&one.text)]),
    );
    text += "\n## Every route\n\n";
    text += &table(["route", "viewer", "deployer", "owner", "auditor", "admin", "agent"], rows);
    text += "\nOnly callers that may submit see the values of Secrets in a submitted version. A test calls every route with \
             every role and compares the results with this table.\n";
    check("permissions.md", &text);
}

/// Returns whether the route only reads. Auditors may call every such route with [`Permission::Token`].
fn reads(name: &str) -> bool {
    name.starts_with("GET ")
}

// ── events ──

#[test]
fn the_reference_page_of_events_is_current() {
    let snake = |source, name| {
        let rows = variants(source, name).into_iter();
        table(["name", "meaning"], rows.map(|one| [format!("`{}`", snake_case(&one.name)), plain(&one.text)]))
    };
    let kept = |source, name| {
        let rows = variants(source, name).into_iter();
        table(["name", "meaning"], rows.map(|one| [format!("`{}`", one.name), plain(&one.text)]))
    };
    let hooks = variants(WEBHOOKS, "WebhookEvent");
    let names: Vec<String> =
        <WebhookEvent as strum::IntoEnumIterator>::iter().map(|one| one.to_string()).collect();
    assert_eq!(hooks.len(), names.len());
    let hooks = names.into_iter().zip(hooks).map(|(name, one)| [format!("`{name}`"), plain(&one.text)]);
    let text = made_from("crates/api/src/{report,status,why,webhooks}.rs")
        + "# Events, states and causes\n\nThe terms of status, events, `why` and webhooks.\n\n\
           ## Events\n\nTransitions that an agent reports of a stack; `brokkr events` lists them.\n\n"
        + &snake(REPORT, "Transition")
        + "\n## States\n\nStates of a stack on an agent; `brokkr status STACK` shows them.\n\n"
        + &snake(STATUS, "State")
        + "\n## Conditions\n\nConditions of a stack on an agent: in the record in its cluster, in the API, and in `brokkr status` if \
           the stack is not in the desired state.\n\n"
        + &kept(REPORT, "ConditionKind")
        + "\n## Hops\n\nThe steps of one version to one agent, in this order; `brokkr why STACK --agent AGENT` shows them.\n\n"
        + &snake(WHY, "Hop")
        + "\n## Causes\n\nReasons why a hop is not passed.\n\n"
        + &snake(WHY, "Cause")
        + "\n## Presence of agents\n\n"
        + &snake(WHY, "Presence")
        + "\n## Webhooks\n\n[How they are sent and verified](../webhooks.md).\n\n"
        + &table(["type", "when"], hooks);
    check("events.md", &text);
}

// ── error codes ──

#[test]
fn the_reference_page_of_error_codes_is_current() {
    let mut codes = ErrorCode::all();
    codes.sort_by_key(ToString::to_string);
    let rows = codes.into_iter().map(|code| {
        [
            format!("[{code}](../errors/{code}.md)"),
            code.status().to_string(),
            plain(code.title()),
            plain(code.next_step()),
            if code.is_transient() { "yes" } else { "" }.to_owned(),
        ]
    });
    let text = made_from("crates/api/src/problem.rs")
        + "# Error codes\n\nEvery error of the broker has a code with a fixed meaning: 1xxx concerns identity and permission, 2xxx \
           the request, 3xxx the state of the installation, 9xxx internal errors. For the exit codes of `brokkr`, see \
           [exit codes](../exit-codes.md).\n\n"
        + &table(["code", "HTTP", "title", "what to do", "retry"], rows);
    check("errors.md", &text);
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(character.to_lowercase());
    }
    text
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
