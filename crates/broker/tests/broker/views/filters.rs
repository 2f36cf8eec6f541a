//! Rows of the status of a stack that are filtered, sorted and counted in the index.

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::page::Page;
use brokkr_api::report::Transition;
use brokkr_api::status::StackStatus;
use serde_json::json;

use super::{deployed, failed, settled};
use crate::harness::{Harness, YAML, refused};

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_stack_is_filtered_sorted_and_counted() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agents = Vec::new();
    for name in ["eu-2", "us-1", "eu-1", "ap-1"] {
        agents.push(harness.agent(name, json!({ "region": &name[..2] })).await?);
    }
    let (web, first) = deployed(&harness.admin, "web", json!({ "selectors": ["*"] })).await?;
    let second = harness.submit("web", &YAML.replace("greeting", "farewell")).await?.sequence_id;
    let reports = [
        agents[0].report(web.id, second, Transition::Healthy, 1_700_000_000),
        failed(&agents[1], &web, second, 1_700_000_000),
        agents[2].report(web.id, first, Transition::Healthy, 1_700_000_000),
    ];
    for (agent, report) in agents.iter().zip(reports) {
        agent.send_reports(&[report]).await?.error_for_status()?;
    }
    let mut connection = harness.database.connect().await?;
    for (name, seconds) in [("eu-2", 10), ("us-1", 100), ("eu-1", 4_000_000)] {
        sqlx::query("UPDATE agents SET last_seen_at = now() - make_interval(secs => $2) WHERE name = $1")
            .bind(name)
            .bind(f64::from(seconds))
            .execute(&mut connection)
            .await?;
    }
    settled(&harness.server.broker).await?;
    for (query, expected) in [
        ("sort=name", "ap-1 eu-1 eu-2 us-1"),
        ("sort=-name", "us-1 eu-2 eu-1 ap-1"),
        ("sort=created", "eu-2 us-1 eu-1 ap-1"),
        ("state=pending&sort=-name", "eu-1 ap-1"),
        ("state=failed", "us-1"),
        ("state=healthy&sort=-created", "eu-2"),
        ("behind=true", "eu-1"),
        ("error=CrashLoopBackOff", "us-1"),
        ("error=CrashLoopBackOff&state=healthy", ""),
        ("error=ImagePullBackOff", ""),
        ("presence=silent", "eu-1"),
        ("presence=never", "ap-1"),
        ("presence=late&state=failed", "us-1"),
        ("selector=region%3Deu&sort=-name", "eu-2 eu-1"),
        ("selector=region%3Deu&behind=true&presence=silent", "eu-1"),
    ] {
        let (mut names, mut after, mut total) = (Vec::new(), String::new(), None);
        loop {
            let path = format!("stacks/web/status?{query}&count=true&limit=1{after}");
            let page: Page<StackStatus> = harness.admin.get_json(&path).await?;
            assert!(page.items.len() <= 1);
            names.extend(page.items.into_iter().map(|row| row.agent_name));
            total = total.or(page.total);
            let Some(next) = page.next else { break };
            after = format!("&after={next}");
        }
        assert_eq!(names.join(" "), expected, "{query}");
        assert_eq!(total, Some(names.len() as u64), "{query}");
    }
    for bad in ["sort=created&after=eu-1", "presence=gone", "behind=maybe"] {
        let response = harness.admin.get(&format!("stacks/web/status?{bad}")).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2003, "{bad}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_without_a_version_has_no_rows() -> Result<()> {
    let harness = Harness::open().await?;
    harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    settled(&harness.server.broker).await?;
    let page: Page<StackStatus> = harness.admin.get_json("stacks/web/status?count=true").await?;
    assert_eq!((page.items.len(), page.total), (0, Some(0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_still_have_a_stack_are_found_while_it_is_removed() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let (web, version) = deployed(&harness.admin, "web", json!({ "agents": ["shop-1"] })).await?;
    agent.hold(&[web.id]).await?;
    let report = agent.report(web.id, version, Transition::Healthy, 1_700_000_000);
    agent.send_reports(&[report]).await?.error_for_status()?;
    let marker = harness.delete("web").await?.sequence_id;
    let blocked = agent.report(web.id, marker, Transition::Blocked, 1_700_000_001);
    agent.send_reports(&[blocked]).await?.error_for_status()?;
    settled(&harness.server.broker).await?;
    let path = format!("stacks/{}/status?count=true&state=", web.id);
    let found =
        async |state: &str| harness.admin.get_json::<Page<StackStatus>>(&format!("{path}{state}")).await;
    assert_eq!(found("blocked").await?.total, Some(1));
    assert_eq!(found("removing").await?.total, Some(0));
    // The index drops a deleted stack that nobody holds; its rows stay.
    let removed = agent.report(web.id, marker, Transition::Removed, 1_700_000_002);
    agent.send_reports(&[removed]).await?.error_for_status()?;
    agent.hold(&[]).await?;
    settled(&harness.server.broker).await?;
    assert!(harness.server.broker.index.snapshot().stack(web.id).is_none());
    let rows = found("removed").await?;
    assert_eq!((rows.total, rows.items[0].agent_name.as_str()), (Some(1), "shop-1"));
    assert_eq!(found("blocked").await?.total, Some(0));
    // No view of the fleet shows a deleted stack.
    let matrix: brokkr_api::fleet::FleetMatrix = harness.admin.get_json("fleet/matrix").await?;
    assert_eq!(matrix.rows, []);
    Ok(())
}
