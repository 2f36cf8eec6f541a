//! Lists: filters, order, pages and counts.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use brokkr_api::agents::Agent;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::report::Transition;
use brokkr_api::stacks::Stack;
use brokkr_api::tokens::Role;
use brokkr_api::{ErrorCode, Name};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::harness::{Caller, Harness, YAML, refused};

/// Reads all pages of a list, two items at a time; returns the items and the total.
async fn all<T: DeserializeOwned>(caller: &Caller, list: &str) -> Result<(Vec<T>, Option<u64>)> {
    let (mut items, mut after, mut total) = (Vec::new(), String::new(), None);
    loop {
        let page: Page<T> = caller.get_json(&format!("{list}&limit=2{after}")).await?;
        assert!(page.items.len() <= 2);
        items.extend(page.items);
        total = total.or(page.total);
        let Some(next) = page.next else { return Ok((items, total)) };
        after = format!("&after={next}");
    }
}

fn names<'a>(named: impl IntoIterator<Item = &'a Name>) -> String {
    named.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_filtered_sorted_counted_and_paged() -> Result<()> {
    let harness = Harness::open().await?;
    let joined = [("eu-2", "prod"), ("us-1", "prod"), ("eu-1", "test"), ("ap-1", "prod"), ("eu-3", "prod")];
    for (name, env) in joined {
        harness.agent(name, json!({ "env": env })).await?;
    }
    harness
        .admin
        .send(Method::PATCH, "agents/eu-3", &json!({ "status": "INACTIVE" }))
        .await?
        .error_for_status()?;
    let mut connection = harness.database.connect().await?;
    for (name, seconds) in [("eu-1", 10), ("us-1", 100), ("ap-1", 400), ("eu-2", 4_000_000)] {
        sqlx::query("UPDATE agents SET last_seen_at = now() - make_interval(secs => $2) WHERE name = $1")
            .bind(name)
            .bind(f64::from(seconds))
            .execute(&mut connection)
            .await?;
    }
    for (query, expected) in [
        ("", "ap-1 eu-1 eu-2 eu-3 us-1"),
        ("sort=-name", "us-1 eu-3 eu-2 eu-1 ap-1"),
        ("sort=created", "eu-2 us-1 eu-1 ap-1 eu-3"),
        ("sort=-created", "eu-3 ap-1 eu-1 us-1 eu-2"),
        ("name=eu", "eu-1 eu-2 eu-3"),
        ("selector=env%3Dprod", "ap-1 eu-2 eu-3 us-1"),
        ("selector=env%3Dprod&name=eu&sort=-created", "eu-3 eu-2"),
        ("status=INACTIVE", "eu-3"),
        ("status=ACTIVE&selector=env%3Dprod", "ap-1 eu-2 us-1"),
        ("presence=fresh", "eu-1"),
        ("presence=late", "us-1"),
        ("presence=silent", "ap-1 eu-2"),
        ("presence=silent&sort=created", "eu-2 ap-1"),
        ("presence=silent&sort=-name&name=eu", "eu-2"),
        ("presence=never", "eu-3"),
        ("presence=late&selector=env%3Dtest", ""),
    ] {
        let (agents, total) = all::<Agent>(&harness.admin, &format!("agents?{query}&count=true")).await?;
        assert_eq!(names(agents.iter().map(|agent| &agent.name)), expected, "{query}");
        assert_eq!(total, Some(agents.len() as u64), "{query}");
        let (_, uncounted) = all::<Agent>(&harness.admin, &format!("agents?{query}")).await?;
        assert_eq!(uncounted, None, "{query}: not requested");
        if let Some((_, presence)) = query.split_once("presence=") {
            let presence = presence.split('&').next().unwrap_or_default();
            assert!(agents.iter().all(|agent| agent.presence.to_string() == presence), "{query}");
        }
    }
    for bad in ["sort=created&after=eu-1", "sort=age", "presence=gone", "selector=%3D", "status=ASLEEP"] {
        let response = harness.admin.get(&format!("agents?{bad}")).await?;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
        assert_eq!(refused(response).await?, ErrorCode::BRK2003, "{bad}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_counts_only_the_agents_that_are_granted_to_it() -> Result<()> {
    let harness = Harness::open().await?;
    for (name, team) in [("a-1", "shop"), ("a-2", "shop"), ("b-1", "bank")] {
        harness.agent(name, json!({ "team": team })).await?;
    }
    let shop = harness.project("shop", Role::Owner).await?;
    let grant = json!({ "project": "shop", "selector": "team=shop", "namespaces": ["shop"], "kinds": ["*"],
        "account": "shop/brokkr-shop" });
    harness.admin.send(Method::PUT, "grants/shop", &grant).await?.error_for_status()?;
    let both = "a-1 a-2";
    for (query, expected) in
        [("", both), ("presence=never", both), ("name=1&sort=-name", "a-1"), ("sort=created", both)]
    {
        let (agents, total) = all::<Agent>(&shop, &format!("agents?{query}&count=true")).await?;
        assert_eq!(names(agents.iter().map(|agent| &agent.name)), expected, "{query}");
        assert_eq!(total, Some(agents.len() as u64), "{query}");
    }
    Ok(())
}

/// The index reuses the slot of a deleted agent. A list that is made meanwhile has neither a gap nor the new agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_made_while_agents_are_replaced_has_no_agent_of_another_project() -> Result<()> {
    let harness = Harness::open().await?;
    let shop = harness.project("shop", Role::Owner).await?;
    let grant = json!({ "project": "shop", "selector": "team=shop", "namespaces": ["shop"], "kinds": ["*"],
        "account": "shop/brokkr-shop" });
    harness.admin.send(Method::PUT, "grants/shop", &grant).await?.error_for_status()?;
    for number in 0..20 {
        harness.agent(&format!("shop-{number}"), json!({ "team": "shop" })).await?;
    }
    let replaced = AtomicBool::new(false);
    let list = async |query: &str| -> Result<usize> {
        let (mut lists, caller) = (0, shop.without_waiting());
        while !replaced.load(Ordering::Relaxed) {
            let page: Page<Agent> = caller.get_json(&format!("agents?{query}")).await?;
            let other = page.items.iter().find(|agent| !agent.name.as_str().starts_with("shop-"));
            anyhow::ensure!(other.is_none(), "{query}: {other:?}");
            lists += 1;
        }
        Ok(lists)
    };
    let replace = async {
        for number in 0..20 {
            for path in [format!("agents/shop-{number}/keys"), format!("agents/shop-{number}")] {
                let request = harness.admin.request(Method::DELETE, &path);
                harness.admin.write(request).await?.error_for_status()?;
            }
            harness.agent(&format!("bank-{number}"), json!({ "team": "bank" })).await?;
        }
        replaced.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let ((), by_name, by_presence) = tokio::try_join!(replace, list(""), list("presence=never"))?;
    assert!(by_name > 20 && by_presence > 20, "{by_name} and {by_presence} lists");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_are_filtered_sorted_counted_and_paged() -> Result<()> {
    let harness = Harness::open().await?;
    for (name, team) in
        [("web", "shop"), ("api", "shop"), ("db", "data"), ("web-cache", "shop"), ("gone", "shop")]
    {
        let stack = json!({ "labels": { "team": team } });
        harness.admin.send(Method::PUT, &format!("stacks/{name}"), &stack).await?.error_for_status()?;
    }
    harness.delete("gone").await?;
    for (query, expected) in [
        ("", "api db web web-cache"),
        ("sort=-name", "web-cache web db api"),
        ("sort=created", "web api db web-cache"),
        ("sort=-created", "web-cache db api web"),
        ("name=web", "web web-cache"),
        ("selector=team%3Dshop", "api web web-cache"),
        ("selector=team%3Dshop&name=web&sort=-name", "web-cache web"),
        ("selector=team%3Dnobody", ""),
    ] {
        let (stacks, total) = all::<Stack>(&harness.admin, &format!("stacks?{query}&count=true")).await?;
        assert_eq!(names(stacks.iter().map(|stack| &stack.name)), expected, "{query}");
        assert_eq!(total, Some(stacks.len() as u64), "{query}");
    }
    let bad = harness.admin.get("stacks?sort=created&after=web").await?;
    assert_eq!(refused(bad).await?, ErrorCode::BRK2003);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_stacks_are_listed_while_an_agent_still_holds_them() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let mut held = Vec::new();
    // Two deleted stacks have the same name, and a page ends between them.
    for name in ["web", "web", "api", "unheld", "existing"] {
        let stack = harness.stack(name, json!({ "agents": ["shop-1"] })).await?;
        if name != "unheld" {
            held.push(stack.id);
            agent.hold(&held).await?;
        }
        if name != "existing" {
            harness.delete(name).await?;
        }
    }
    let still_held = async |query: &str| -> Result<String> {
        let (stacks, _) = all::<Stack>(&harness.admin, &format!("stacks?deleted=true{query}")).await?;
        assert!(stacks.iter().all(|stack| stack.deleted_at.is_some()), "{stacks:?}");
        Ok(names(stacks.iter().map(|stack| &stack.name)))
    };
    assert_eq!(still_held("").await?, "web web api");
    assert_eq!(still_held("&name=ap").await?, "api");
    agent.hold(&held[1..2]).await?;
    assert_eq!(still_held("").await?, "web");
    for bad in ["sort=created", "count=true", "after=web"] {
        let refused_with = refused(harness.admin.get(&format!("stacks?deleted=true&{bad}")).await?).await?;
        assert_eq!(refused_with, ErrorCode::BRK2003, "{bad}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_filtered_by_kind_object_and_time() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let (first, second) = (
        harness.submit("web", YAML).await?,
        harness.submit("web", &YAML.replace("greeting", "farewell")).await?,
    );
    let now = jiff::Timestamp::now().as_second();
    let reports = [
        agent.report(stack.id, first.sequence_id, Transition::Applied, now - 300),
        agent.report(stack.id, first.sequence_id, Transition::Healthy, now - 200),
        agent.report(stack.id, second.sequence_id, Transition::Applied, now - 100),
    ];
    agent.send_reports(&reports).await?.error_for_status()?;
    let at = |ago: i64| jiff::Timestamp::from_second(now - ago).map(|at| at.to_string());
    let whole = [2, 1, 0];
    for (query, expected) in [
        (String::new(), &whole[..]),
        ("transition=applied".to_owned(), &[2, 0]),
        (format!("sequence_id={}", first.sequence_id), &[1, 0]),
        (format!("since={}", at(200)?), &[2, 1]),
        (format!("until={}", at(200)?), &[0]),
        (format!("stack=web&agent=shop-1&transition=healthy&since={}&until={}", at(250)?, at(150)?), &[1]),
        ("agent=shop-1&transition=failed".to_owned(), &[]),
    ] {
        let (events, _) = all::<Event>(&harness.admin, &format!("events?{query}")).await?;
        let found: Vec<_> = events.iter().map(|event| event.id).collect();
        let expected: Vec<_> = expected.iter().map(|number| reports[*number as usize].id).collect();
        assert_eq!(found, expected, "{query}");
    }
    Ok(())
}
