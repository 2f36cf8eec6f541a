//! Grants: a stack reaches only agents that are granted to its project; a withdrawn grant freezes stacks.

use std::sync::Arc;

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::agents::{Agent as AgentAnswer, Target};
use brokkr_api::envelope::{Envelope, Grant};
use brokkr_api::grants::ProjectGrant;
use brokkr_api::page::Page;
use brokkr_api::projects::Project;
use brokkr_api::selector::{SelectorPreview, StackPreview};
use brokkr_api::tokens::Role;
use brokkr_api::{Labels, Problem, StackId};
use brokkr_testkit::Postgres;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Agent, Caller, Harness, YAML, current, read, refused};

fn grant(project: &str, selector: &str, namespace: &str) -> Value {
    json!({
        "project": project,
        "selector": selector,
        "namespaces": [namespace],
        "kinds": ["*"],
        "account": format!("{namespace}/brokkr-{project}"),
    })
}

async fn put(harness: &Harness, name: &str, grant: &Value) -> Result<ProjectGrant> {
    read(harness.admin.send(Method::PUT, &format!("grants/{name}"), grant).await?).await
}

/// A stack of a project that targets all agents that are granted to it.
async fn stack_for_all(owner: &Caller) -> Result<StackId> {
    let stack: brokkr_api::stacks::Stack =
        read(owner.send(Method::PUT, "stacks/web", &json!({})).await?).await?;
    let targets = json!({ "selectors": ["*"] });
    let targeted = owner.send(Method::PUT, "stacks/web/targets", &targets).await?;
    assert_eq!(targeted.status(), StatusCode::OK);
    let submitted = owner.request(Method::POST, "stacks/web/deployment-objects").body(YAML).send().await?;
    assert_eq!(submitted.status(), StatusCode::CREATED);
    Ok(stack.id)
}

async fn envelope(agent: &Agent) -> Result<Envelope> {
    agent.poll().await?.envelope()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_reaches_only_agents_that_are_granted_to_it() -> Result<()> {
    let harness = Harness::open().await?;
    let prod = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let test = harness.agent("shop-2", json!({ "env": "test" })).await?;
    let owner = harness.project("shop", Role::Owner).await?;
    stack_for_all(&owner).await?;
    assert!(envelope(&prod).await?.stacks.is_empty(), "no grant, no target");
    assert_eq!(owner.get("agents/shop-1").await?.status(), StatusCode::NOT_FOUND);

    put(&harness, "shop-prod", &grant("shop", "env=prod", "shop")).await?;
    let reached = envelope(&prod).await?;
    let expected = Grant {
        namespaces: vec!["shop".into()],
        kinds: vec!["*".into()],
        account: Some("shop/brokkr-shop".into()),
    };
    assert_eq!(reached.stacks[0].grant, Some(expected));
    assert!(envelope(&test).await?.stacks.is_empty());
    // Agents that are not granted are invisible.
    let agents: Page<AgentAnswer> = owner.get_json("agents").await?;
    let names: Vec<String> = agents.items.iter().map(|agent| agent.name.to_string()).collect();
    assert_eq!(names, ["shop-1"]);
    assert_eq!(owner.get("agents/shop-1").await?.status(), StatusCode::OK);
    for hidden in ["agents/shop-2", "agents/shop-2/targets"] {
        assert_eq!(refused(owner.get(hidden).await?).await?, ErrorCode::BRK2001, "{hidden}");
    }
    let all: Page<AgentAnswer> = harness.admin.get_json("agents").await?;
    assert_eq!(all.items.len(), 2);
    // Stacks of other projects on a shared agent are invisible, too.
    harness.stack("theirs", json!({ "selectors": ["*"] })).await?;
    let targets: Page<Target> = owner.get_json("agents/shop-1/targets").await?;
    assert_eq!(targets.items.iter().map(|target| &*target.project).collect::<Vec<_>>(), ["shop"]);
    let targets: Page<Target> = harness.admin.get_json("agents/shop-1/targets").await?;
    assert_eq!(targets.items.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_an_agent_that_is_not_granted_are_refused_like_those_of_an_unknown_agent() -> Result<()> {
    let harness = Harness::open().await?;
    let granted = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let hidden = harness.agent("shop-2", json!({ "env": "test" })).await?;
    let viewer = harness.project("shop", Role::Viewer).await?;
    put(&harness, "shop-prod", &grant("shop", "env=prod", "shop")).await?;
    let ask = async |path: &str, agent: &str| -> Result<(StatusCode, Value)> {
        let response = viewer.get(&format!("{path}?agent={agent}")).await?;
        let status = response.status();
        // A stream does not end; its head is enough.
        let mut body = if status.is_success() { Value::Null } else { response.json().await? };
        if let Some(body) = body.as_object_mut() {
            body.remove("request_id");
        }
        Ok((status, body))
    };
    for path in ["events", "events/stream"] {
        let unknown = ask(path, "shop-3").await?;
        assert_eq!(unknown.0, StatusCode::NOT_FOUND, "{path}");
        for agent in ["shop-2".to_owned(), hidden.id.to_string()] {
            assert_eq!(ask(path, &agent).await?, unknown, "{path} of {agent}");
        }
        for agent in ["shop-1".to_owned(), granted.id.to_string()] {
            assert_eq!(ask(path, &agent).await?.0, StatusCode::OK, "{path} of {agent}");
        }
        let all = harness.admin.get(&format!("{path}?agent=shop-2")).await?;
        assert_eq!(all.status(), StatusCode::OK, "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawing_a_grant_freezes_held_stacks_and_needs_expect() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let owner = harness.project("shop", Role::Owner).await?;
    put(&harness, "shop", &grant("shop", "*", "shop")).await?;
    let stack = stack_for_all(&owner).await?;
    agent.hold(&[stack]).await?;

    let bare = harness.admin.request(Method::DELETE, "grants/shop").send().await?;
    assert_eq!(bare.status(), StatusCode::CONFLICT);
    let problem: Problem = bare.json().await?;
    assert_eq!((problem.code, problem.expect), (ErrorCode::BRK2009, Some(1)));
    assert_eq!(problem.errors, ["stack web on agent shop-1"]);
    let wrong = harness.admin.request(Method::DELETE, "grants/shop?expect=2").send().await?;
    assert_eq!(refused(wrong).await?, ErrorCode::BRK2009);
    assert_eq!(envelope(&agent).await?.stacks[0].grant.as_ref().unwrap().namespaces, ["shop"]);

    let confirmed =
        harness.admin.write(harness.admin.request(Method::DELETE, "grants/shop?expect=1")).await?;
    assert_eq!(confirmed.status(), StatusCode::NO_CONTENT);
    let frozen = envelope(&agent).await?;
    assert_eq!((frozen.stacks[0].removal, frozen.stacks[0].grant.clone()), (None, Some(Grant::default())));
    // Without a grant, deleting the stack removes nothing either.
    let deleted = owner.write(owner.request(Method::DELETE, "stacks/web")).await?;
    assert_eq!(deleted.status(), StatusCode::OK);
    let frozen = envelope(&agent).await?;
    assert_eq!((frozen.stacks[0].removal, frozen.stacks[0].grant.clone()), (None, Some(Grant::default())));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admins_write_grants_and_incomplete_grants_are_refused() -> Result<()> {
    let harness = Harness::open().await?;
    let owner = harness.project("shop", Role::Owner).await?;
    let good = grant("shop", "env=prod", "shop");
    assert_eq!(refused(owner.send(Method::PUT, "grants/shop", &good).await?).await?, ErrorCode::BRK1002);
    for (field, bad) in [
        ("account", json!("shop/deployer")),
        ("account", json!("")),
        ("namespaces", json!([])),
        ("kinds", json!([])),
        ("selector", json!("")),
        ("more", json!(1)),
    ] {
        let mut wrong = good.clone();
        wrong[field] = bad;
        let answer = harness.admin.send(Method::PUT, "grants/shop", &wrong).await?;
        assert_eq!(refused(answer).await?, ErrorCode::BRK2003, "{wrong}");
    }
    let nowhere = harness.admin.send(Method::PUT, "grants/x", &grant("nowhere", "*", "a")).await?;
    assert_eq!(refused(nowhere).await?, ErrorCode::BRK2001);

    let made = harness.admin.send(Method::PUT, "grants/shop", &good).await?;
    assert_eq!(made.status(), StatusCode::CREATED);
    let made: ProjectGrant = read(made).await?;
    let changed = put(&harness, "shop", &grant("shop", "env", "shop")).await?;
    assert_eq!((changed.id, changed.selector.to_string()), (made.id, "env".to_owned()));
    let moved = harness.admin.send(Method::PUT, "grants/shop", &grant("default", "*", "a")).await?;
    assert_eq!(refused(moved).await?, ErrorCode::BRK2003, "a grant stays with its project");
    let list: Page<ProjectGrant> = harness.admin.get_json("grants").await?;
    assert_eq!(list.items, [harness.admin.get_json::<ProjectGrant>("grants/shop").await?]);
    assert_eq!(refused(harness.admin.get("grants/none").await?).await?, ErrorCode::BRK2001);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn label_and_selector_changes_that_remove_stacks_need_expect_and_names_do_not() -> Result<()> {
    let harness = Harness::open().await?;
    for name in ["shop-1", "shop-2", "shop-3"] {
        harness.agent(name, json!({ "env": "prod" })).await?;
    }
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    harness.stack("named", json!({ "agents": ["shop-1", "shop-2"] })).await?;

    let labels = json!({ "labels": { "env": "test" } });
    let answer = harness.admin.send(Method::PATCH, "agents/shop-1", &labels).await?;
    let problem: Problem = answer.json().await?;
    assert_eq!((problem.code, problem.expect), (ErrorCode::BRK2009, Some(1)), "{problem}");
    let agent: AgentAnswer = harness.admin.get_json("agents/shop-1").await?;
    assert_eq!(agent.labels, Labels::from([("env".into(), "prod".into())]), "nothing was changed");
    let answer = harness.admin.send(Method::PATCH, "agents/shop-1?expect=1", &labels).await?;
    assert_eq!(answer.status(), StatusCode::OK);

    let targets = json!({ "selectors": ["env=dev"] });
    let preview: SelectorPreview =
        harness.admin.get_json("selectors/preview?selector=env%3Dtest&stack=web").await?;
    assert_eq!(preview.agents, 1);
    assert_eq!(preview.page.items[0].name.to_string(), "shop-1");
    assert_eq!(preview.stack, Some(StackPreview { gained: 1, kept: 0, lost: 2 }));
    let answer = harness.admin.send(Method::PUT, "stacks/web/targets", &targets).await?;
    let problem: Problem = answer.json().await?;
    assert_eq!((problem.code, problem.expect), (ErrorCode::BRK2009, Some(2)), "{problem}");
    let answer = harness.admin.send(Method::PUT, "stacks/web/targets?expect=2", &targets).await?;
    assert_eq!(answer.status(), StatusCode::OK);

    // Removing a named agent is intended and needs no `expect`.
    let answer =
        harness.admin.send(Method::PUT, "stacks/named/targets", &json!({ "agents": ["shop-2"] })).await?;
    assert_eq!(answer.status(), StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_is_read_page_by_page() -> Result<()> {
    let harness = Harness::open().await?;
    for count in 1..=5 {
        harness
            .agent(&format!("shop-{count}"), json!({ "env": if count == 3 { "dev" } else { "prod" } }))
            .await?;
    }
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("selectors/preview?selector=env!%3Ddev&limit=3{after}");
        let page: SelectorPreview = harness.admin.get_json(&path).await?;
        assert_eq!(page.agents, 4, "all of them, whatever the page");
        names.extend(page.page.items.iter().map(|agent| agent.name.to_string()));
        let Some(next) = page.page.next else { break };
        after = format!("&after={next}");
    }
    assert_eq!(names, ["shop-1", "shop-2", "shop-4", "shop-5"]);
    let empty = harness.admin.get("selectors/preview?selector=").await?;
    assert_eq!(refused(empty).await?, ErrorCode::BRK2003);
    let ungranted = harness.project("shop", Role::Viewer).await?;
    let preview: SelectorPreview = ungranted.get_json("selectors/preview?selector=*").await?;
    assert_eq!(preview.agents, 0, "no agent is granted to it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_last_grant_of_the_default_project_freezes_it_until_an_admin_lifts_the_restriction()
-> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    harness.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    let restricted = async || -> Result<bool> {
        Ok(harness.admin.get_json::<Project>("projects/default").await?.restricted)
    };
    assert_eq!(envelope(&agent).await?.stacks[0].grant, None, "it may do everything");
    assert!(!restricted().await?);

    put(&harness, "all", &grant("default", "*", "shop")).await?;
    assert_eq!(envelope(&agent).await?.stacks[0].grant.as_ref().unwrap().namespaces, ["shop"]);
    let lift = json!({ "restricted": false });
    let early = harness.admin.send(Method::PUT, "projects/default", &lift).await?;
    assert_eq!(refused(early).await?, ErrorCode::BRK2003, "it has a grant");

    let bare = harness.admin.request(Method::DELETE, "grants/all").send().await?;
    assert_eq!(refused(bare).await?, ErrorCode::BRK2009, "the deletion freezes a stack");
    let deleted = harness.admin.write(harness.admin.request(Method::DELETE, "grants/all?expect=1")).await?;
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    let frozen = envelope(&agent).await?;
    assert_eq!((frozen.stacks[0].removal, frozen.stacks[0].grant.clone()), (None, Some(Grant::default())));
    assert!(restricted().await?);
    // A replica that starts now reads the same.
    let other = harness.replica().await?;
    assert!(other.broker.index.snapshot().granted("default").is_empty());
    other.stop().await;

    let lifted = harness.admin.send(Method::PUT, "projects/default", &lift).await?;
    assert_eq!(lifted.status(), StatusCode::OK);
    assert_eq!(envelope(&agent).await?.stacks[0].grant, None);
    // An admin can also restrict it without a grant; that freezes stacks, too.
    let restrict = json!({ "restricted": true });
    let bare = harness.admin.send(Method::PUT, "projects/default", &restrict).await?;
    assert_eq!(refused(bare).await?, ErrorCode::BRK2009);
    let confirmed = harness.admin.send(Method::PUT, "projects/default?expect=1", &restrict).await?;
    assert_eq!(confirmed.status(), StatusCode::OK);
    assert_eq!(envelope(&agent).await?.stacks[0].grant, Some(Grant::default()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_project_can_act_without_grants() -> Result<()> {
    let harness = Harness::open().await?;
    harness.project("shop", Role::Viewer).await?;
    assert!(harness.admin.get_json::<Project>("projects/shop").await?.restricted);
    let lift = harness.admin.send(Method::PUT, "projects/shop", &json!({ "restricted": false })).await?;
    assert_eq!(refused(lift).await?, ErrorCode::BRK2003);
    Ok(())
}

/// P14: a replica that is behind does not count the losses of a change.
#[tokio::test(flavor = "multi_thread")]
async fn losses_are_counted_only_in_a_current_index() -> Result<()> {
    // Its own server: the open transaction delays every index.
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    harness.agent("shop-1", json!({ "env": "prod" })).await?;
    put(&harness, "all", &grant("default", "*", "shop")).await?;
    harness.stack("web", json!({})).await?;
    current(&harness.server.broker).await?;

    // From here on, the index sees no change: not that the stack now reaches the agent.
    let mut blocking = harness.database.connect().await?;
    for sql in ["BEGIN", "SELECT pg_current_xact_id()"] {
        sqlx::query(sql).execute(&mut blocking).await?;
    }
    let admin = harness.admin.without_waiting();
    let targeted =
        admin.send(Method::PUT, "stacks/web/targets", &json!({ "selectors": ["env=prod"] })).await?;
    assert_eq!(targeted.status(), StatusCode::OK);
    let (nothing, labels) = (json!({}), json!({ "labels": { "env": "test" } }));
    let requests = async || {
        tokio::try_join!(
            admin.send(Method::PUT, "stacks/web/targets", &nothing),
            admin.send(Method::PATCH, "agents/shop-1", &labels),
            async { anyhow::Ok(admin.request(Method::DELETE, "grants/all").send().await?) },
        )
    };
    let (targets, patch, grants) = requests().await?;
    for response in [targets, patch, grants] {
        assert_eq!(refused(response).await?, ErrorCode::BRK3002, "it cannot know");
    }
    sqlx::query("ROLLBACK").execute(&mut blocking).await?;
    let (targets, patch, grants) = requests().await?;
    for response in [targets, patch, grants] {
        let problem: Problem = response.json().await?;
        assert_eq!((problem.code, problem.expect), (ErrorCode::BRK2009, Some(1)), "{problem}");
    }
    Ok(())
}
