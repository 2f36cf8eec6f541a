//! Projects: resources of other projects get 404.

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::page::Page;
use brokkr_api::projects::Project;
use brokkr_api::protocol::header;
use brokkr_api::stacks::Stack;
use brokkr_api::tokens::{Role, WhoAmI};
use reqwest::Method;
use serde_json::json;

use crate::harness::{Harness, YAML, read, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_project_sees_only_its_own_stacks_and_an_admin_can_name_a_project() -> Result<()> {
    let harness = Harness::open().await?;
    let shop = harness.project("shop", Role::Deployer).await?;
    harness.stack("web", json!({})).await?;
    let object = harness.submit("web", YAML).await?;
    for (method, path) in [
        (Method::GET, "stacks/web".to_owned()),
        (Method::DELETE, "stacks/web".to_owned()),
        (Method::GET, "stacks/web/status".to_owned()),
        (Method::GET, format!("deployment-objects/{}", object.sequence_id)),
        (Method::GET, "projects/default".to_owned()),
    ] {
        let response = shop.request(method, &path).send().await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2001, "{path}");
    }
    // In another project, the same name is another stack.
    let other: Stack = read(shop.send(Method::PUT, "stacks/web", &json!({})).await?).await?;
    assert_eq!(other.project, "shop");
    assert_eq!(shop.get_json::<Page<Stack>>("stacks").await?.items.len(), 1);
    assert_eq!(shop.get_json::<Page<Project>>("projects").await?.items.len(), 1);
    assert_eq!(harness.admin.get_json::<Page<Project>>("projects").await?.items.len(), 2);

    let auditor = harness.with_role(Role::Auditor).await?;
    for caller in [&harness.admin, &auditor] {
        let request = caller.request(Method::GET, "stacks/web").header(header::PROJECT, "shop");
        assert_eq!(read::<Stack>(request.send().await?).await?.id, other.id);
        let who = caller.request(Method::GET, "whoami").header(header::PROJECT, "shop").send().await?;
        assert_eq!(read::<WhoAmI>(who).await?.project, "shop");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_foreign_project_gets_404() -> Result<()> {
    let harness = Harness::open().await?;
    let shop = harness.project("shop", Role::Owner).await?;
    let named = async |name: &str| -> Result<serde_json::Value> {
        let response = shop.request(Method::GET, "stacks").header(header::PROJECT, name).send().await?;
        assert_eq!(response.status(), 404);
        let mut problem: serde_json::Value = response.json().await?;
        problem["request_id"] = json!("");
        Ok(problem)
    };
    assert_eq!(named("default").await?, named("no-such-project").await?);
    let own = shop.request(Method::GET, "stacks").header(header::PROJECT, "shop").send().await?;
    assert!(own.status().is_success());
    let nowhere = harness.admin.request(Method::GET, "stacks").header(header::PROJECT, "no-such-project");
    assert_eq!(refused(nowhere.send().await?).await?, ErrorCode::BRK2001);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_can_be_deleted_only_when_it_is_empty() -> Result<()> {
    let harness = Harness::open().await?;
    let delete = async |project: &str| harness.admin.request(Method::DELETE, project).send().await;
    assert_eq!(refused(delete("projects/default").await?).await?, ErrorCode::BRK1008);
    assert_eq!(refused(delete("projects/none").await?).await?, ErrorCode::BRK2001);

    let shop = harness.project("shop", Role::Owner).await?;
    assert_eq!(refused(delete("projects/shop").await?).await?, ErrorCode::BRK1008, "a token is valid");
    let who: WhoAmI = shop.get_json("whoami").await?;
    let own = format!("api-tokens/{}", who.token_id);
    assert_eq!(shop.request(Method::DELETE, &own).send().await?.status(), 204);
    assert_eq!(delete("projects/shop").await?.status(), 204);
    assert_eq!(refused(harness.admin.get("projects/shop").await?).await?, ErrorCode::BRK2001);

    let shop = harness.project("shop", Role::Owner).await?;
    shop.send(Method::PUT, "stacks/web", &json!({})).await?;
    assert_eq!(refused(delete("projects/shop").await?).await?, ErrorCode::BRK1008, "it has a stack");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_of_a_project_follows_each_change() -> Result<()> {
    let harness = Harness::open().await?;
    let shop = harness.project("shop", Role::Owner).await?;
    for stack in ["one", "two", "three"] {
        shop.send(Method::PUT, &format!("stacks/{stack}"), &json!({})).await?;
        let path = format!("stacks/{stack}/deployment-objects");
        assert_eq!(shop.request(Method::POST, &path).body(YAML).send().await?.status(), 201);
    }
    shop.request(Method::DELETE, "stacks/two").send().await?;
    let used = shop.get_json::<Project>("projects/shop").await?.used;
    assert_eq!((used.stacks, used.tokens, used.webhooks), (2, 1, 0));
    assert_eq!(used.stored_bytes, 3 * YAML.len() as u64, "a deletion marker has no content");
    assert!((3..=4).contains(&used.submissions_per_hour), "unless a new hour began");
    Ok(())
}
