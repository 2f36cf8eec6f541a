//! Two agents join, and the project is granted them.

use anyhow::Result;
use brokkr_api::agents::RegisteredAgent;
use brokkr_api::tokens::JoinToken;
use reqwest::Method;
use serde_json::{from_value, json};

use super::Tour;
use crate::harness::{Agent, Caller, Key};

pub async fn walk(tour: &Tour, owner: &Caller) -> Result<(Agent, Agent)> {
    let (harness, ops) = (&tour.harness, &tour.ops);
    let wanted = json!({ "agent_name": "eu-1", "labels": { "env": "prod", "region": "eu" } });
    let token: JoinToken = from_value(tour.post(ops, "join-tokens", wanted).await?)?;
    let key = Key::generate()?;
    let wanted = json!(key.registration(&token.token)?);
    let joined: RegisteredAgent =
        from_value(tour.post(&harness.without_credential(), "agents/register", wanted).await?)?;
    let eu = harness.joined(&joined, key);
    let session = json!({ "count": eu.session.count, "instance": eu.session.instance });
    tour.post(&eu.caller(), &eu.path("session"), session).await?;
    let us = harness.agent("us-1", json!({ "env": "prod", "region": "us" })).await?;
    let spare = harness.join_token("us-2", json!({ "env": "prod", "region": "us" })).await?;
    tour.get(ops, "join-tokens").await?;
    tour.delete(ops, &format!("join-tokens/{}", spare.id)).await?;

    let wanted = json!({ "annotations": { "contact": "shop-team" } });
    tour.patch(ops, "agents/eu-1", wanted).await?;
    let grant = json!({
        "project": "shop",
        "selector": "env=prod",
        "namespaces": ["shop"],
        "kinds": ["*"],
        "account": "shop/brokkr-shop",
    });
    tour.put(ops, "grants/shop-prod", grant.clone()).await?;
    tour.get(ops, "grants").await?;
    tour.get(ops, "grants/shop-prod").await?;
    ops.send(Method::PUT, "grants/shop-again", &grant).await?.error_for_status()?;
    tour.delete(ops, "grants/shop-again").await?;

    let rule = json!({
        "kind": "weekly",
        "timezone": "Europe/Berlin",
        "days": ["mon", "tue", "wed", "thu"],
        "start": "22:00",
        "minutes": 360,
    });
    tour.put(ops, "windows/night", json!({ "selector": "site=shop", "rule": rule })).await?;
    tour.get(ops, "windows").await?;
    tour.get(ops, "windows/night").await?;
    tour.delete(ops, "windows/night").await?;

    for agent in [&eu, &us] {
        agent.poll().await?.envelope()?;
    }
    tour.get(owner, "agents?count=true").await?;
    tour.get(owner, "agents/eu-1").await?;
    Ok((eu, us))
}
