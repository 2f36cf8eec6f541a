//! Deployment objects: immutable, counted, repeatable, deleted by a marker.

use std::collections::HashSet;

use anyhow::Result;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::stacks::Stack;
use brokkr_api::system::System;
use brokkr_api::tokens::JoinToken;
use brokkr_api::{ErrorCode, SequenceId};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Harness, YAML, position, read, refused};

fn sequence(object: &DeploymentObject) -> SequenceId {
    object.sequence_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_the_bytes_and_their_checksum_are_exactly_as_submitted() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let yaml = format!("# a comment, and odd   spacing\n---\n{YAML}\n\n---\n");
    let object = harness.submit("web", &yaml).await?;
    assert_eq!(object.checksum, Checksum::of(yaml.as_bytes()));
    assert_eq!(object.resources, 1);

    let path = format!("deployment-objects/{}", object.sequence_id);
    let response = harness.admin.get(&path).await?;
    assert_eq!(response.headers()["etag"], format!("\"{}\"", object.checksum));
    assert_eq!(response.headers()["content-type"], "application/yaml");
    assert!(response.headers()["cache-control"].to_str()?.contains("immutable"));
    assert_eq!(response.text().await?, yaml);
    let again = harness
        .admin
        .request(Method::GET, &path)
        .header("if-none-match", format!("W/\"{}\"", object.checksum));
    assert_eq!(again.send().await?.status(), StatusCode::NOT_MODIFIED);

    let mut connection = harness.database.connect().await?;
    let changed = sqlx::query("UPDATE deployment_objects SET content = 'x'").execute(&mut connection).await;
    assert!(changed.is_err(), "the database refuses changes, too");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_are_compressed_on_request() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let yaml = format!("{YAML}data:\n  text: \"{}\"\n", "words ".repeat(1000));
    let object = harness.submit("web", &yaml).await?;
    let request = harness.admin.request(Method::GET, &format!("deployment-objects/{}", object.sequence_id));
    let response = request.header("accept-encoding", "gzip").send().await?;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_sequence_ids_grow_under_concurrency_and_the_highest_of_a_stack_is_desired() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    for stack in ["one", "two", "three"] {
        harness.stack(stack, json!({ "selectors": ["*"] })).await?;
    }
    let submissions = (0..60).map(|count| {
        let (harness, stack) = (&harness, ["one", "two", "three"][count % 3]);
        async move { harness.submit(stack, YAML).await }
    });
    let objects = futures::future::try_join_all(submissions).await?;
    let distinct: HashSet<_> = objects.iter().map(|object| object.sequence_id).collect();
    assert_eq!(distinct.len(), 60, "never used twice");

    for name in ["one", "two", "three"] {
        let stack: Stack = harness.admin.get_json(&format!("stacks/{name}")).await?;
        let history: Page<DeploymentObject> =
            harness.admin.get_json(&format!("stacks/{name}/deployment-objects")).await?;
        assert_eq!(history.items.len(), 20);
        assert_eq!(stack.sequence_id, history.items.first().map(|object| object.sequence_id));
        assert!(history.items.is_sorted_by(|newer, older| {
            newer.sequence_id > older.sequence_id && newer.created_at >= older.created_at
        }));
        let highest = objects.iter().filter(|object| object.stack_id == stack.id).map(sequence).max();
        assert_eq!(stack.sequence_id, highest);
        let envelope = agent.poll().await?.envelope()?;
        let desired = envelope.stacks.iter().find(|target| target.stack_id == stack.id);
        assert_eq!(desired.map(|target| target.sequence_id), stack.sequence_id, "the highest is desired");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_the_sequence_id_of_a_submission_that_was_rolled_back_is_never_used() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let first = harness.submit("web", YAML).await?;
    // The last statement of a submission fails: its id was taken, and everything is rolled back.
    let mut connection = harness.database.connect().await?;
    sqlx::raw_sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'injected failure'; END $$;
         CREATE TRIGGER fail BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION fail();",
    )
    .execute(&mut connection)
    .await?;
    let failed =
        harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(YAML).send().await?;
    assert_eq!(refused(failed).await?, ErrorCode::BRK9001);
    sqlx::query("DROP TRIGGER fail ON outbox").execute(&mut connection).await?;
    let lost: i64 = sqlx::query_scalar("SELECT last_value FROM deployment_object_sequence")
        .fetch_one(&mut connection)
        .await?;
    assert!(lost > first.sequence_id.0, "an id was taken");
    assert_eq!(agent.poll().await?.envelope()?.stacks[0].sequence_id, first.sequence_id);

    let next = harness.submit("web", YAML).await?;
    assert!(next.sequence_id.0 > lost, "{} after {lost}", next.sequence_id);
    assert_eq!(agent.poll().await?.envelope()?.stacks[0].sequence_id, next.sequence_id);
    let history: Page<DeploymentObject> = harness.admin.get_json("stacks/web/deployment-objects").await?;
    let history: Vec<_> = history.items.iter().map(sequence).collect();
    assert_eq!(history, [next.sequence_id, first.sequence_id]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_the_same_content_again_gets_a_new_sequence_id() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let (first, second) = (harness.submit("web", YAML).await?, harness.submit("web", YAML).await?);
    assert!(second.sequence_id > first.sequence_id);
    assert_eq!(second.checksum, first.checksum);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn e1_deleting_a_stack_creates_a_deletion_marker_and_frees_the_name() -> Result<()> {
    let harness = Harness::open().await?;
    let stack = harness.stack("web", json!({})).await?;
    let object = harness.submit("web", YAML).await?;
    let marker = harness.delete("web").await?;
    assert!(marker.is_deletion_marker);
    assert!(marker.sequence_id > object.sequence_id);
    assert_eq!((marker.stack_id, marker.resources), (stack.id, 0));
    assert_eq!(marker.checksum, Checksum::of(b""));
    assert_eq!(harness.delete("web").await?, marker, "deleting again changes nothing");

    let deleted: Stack = harness.admin.get_json("stacks/web").await?;
    assert!(deleted.deleted_at.is_some(), "found by name while no other stack has it");
    let submitted =
        harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(YAML).send().await?;
    assert_eq!(refused(submitted).await?, ErrorCode::BRK2008);

    let new = harness.stack("web", json!({})).await?;
    assert_ne!(new.id, stack.id);
    let by_name: Stack = harness.admin.get_json("stacks/web").await?;
    assert_eq!(by_name.id, new.id);
    let by_id: Stack = harness.admin.get_json(&format!("stacks/{}", stack.id)).await?;
    assert_eq!(by_id.sequence_id, Some(marker.sequence_id));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_of_a_manifest_is_reported_and_nothing_is_stored() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let bad = "apiVersion: v1\nkind: ConfigMap\n---\nkind: Secret\nmetadata: {name: a}\n";
    let response =
        harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(bad).send().await?;
    let problem: brokkr_api::Problem = response.json().await?;
    assert_eq!(problem.code, ErrorCode::BRK2004);
    assert!(problem.errors.len() >= 2, "{:?}", problem.errors);
    let history: Page<DeploymentObject> = harness.admin.get_json("stacks/web/deployment-objects").await?;
    assert!(history.items.is_empty());

    let large = "#".repeat(8 * 1024 * 1024 + 1);
    let response =
        harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(large).send().await?;
    assert_eq!(refused(response).await?, ErrorCode::BRK2006);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_idempotency_key_returns_the_first_result_even_concurrently() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let submit = |key: &str, yaml: &str| {
        let request = harness.admin.request(Method::POST, "stacks/web/deployment-objects");
        request.header("idempotency-key", key).body(yaml.to_owned()).send()
    };
    let answers = futures::future::try_join_all((0..10).map(|_| submit("same", YAML))).await?;
    let mut objects = HashSet::new();
    let mut positions = HashSet::new();
    for answer in answers {
        assert_eq!(answer.status(), StatusCode::CREATED);
        positions.insert(position(&answer).map(|token| token.position));
        objects.insert(answer.text().await?);
    }
    assert_eq!((objects.len(), positions.len()), (1, 1), "one object, returned ten times");
    let history: Page<DeploymentObject> = harness.admin.get_json("stacks/web/deployment-objects").await?;
    assert_eq!(history.items.len(), 1);

    let other = submit("same", &format!("{YAML}# other\n")).await?;
    assert_eq!(refused(other).await?, ErrorCode::BRK2005);
    Ok(())
}

/// After a dump and restore, transaction ids begin again. The position of a stored result must not be ahead of them: who
/// shows it would put the installation on hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_result_from_before_a_dump_and_restore_proves_no_future_position() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let submit = || {
        let request = harness.admin.request(Method::POST, "stacks/web/deployment-objects");
        request.header("idempotency-key", "once").body(YAML).send()
    };
    let first: DeploymentObject = read(submit().await?).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE idempotency_keys SET xid = '900000000000'").execute(&mut connection).await?;
    let again = submit().await?;
    let shown = position(&again).expect("a position");
    assert_eq!(read::<DeploymentObject>(again).await?.sequence_id, first.sequence_id);
    let listed = harness.admin.request(Method::GET, "agents").header(header::POSITION, shown.to_string());
    assert_eq!(listed.send().await?.status(), StatusCode::OK, "{shown}");
    let system: System = harness.admin.get_json("system").await?;
    assert_eq!(system.hold, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_query_is_part_of_the_request_that_an_idempotency_key_names() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    harness.submit("web", YAML).await?;
    let delete = |query: &str| {
        let request = harness.admin.request(Method::DELETE, &format!("stacks/web{query}"));
        request.header("idempotency-key", "once").send()
    };
    let first: DeploymentObject = read(delete("?keep_resources=true").await?).await?;
    let again: DeploymentObject = read(delete("?keep_resources=true").await?).await?;
    assert_eq!(first.sequence_id, again.sequence_id);
    for other in ["", "?keep_resources=false"] {
        assert_eq!(refused(delete(other).await?).await?, ErrorCode::BRK2005, "{other}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_join_token_is_the_same_and_its_secret_is_nowhere_in_the_database() -> Result<()> {
    let harness = Harness::open().await?;
    let create = || {
        let request = harness.admin.request(Method::POST, "join-tokens").header("idempotency-key", "once");
        request.json(&json!({ "agent_name": "shop" })).send()
    };
    let (first, second): (JoinToken, JoinToken) =
        (read(create().await?).await?, read(create().await?).await?);
    assert_eq!(first.token, second.token);
    let mut connection = harness.database.connect().await?;
    let bodies: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT body FROM idempotency_keys").fetch_all(&mut connection).await?;
    assert!(bodies.iter().all(|body| !String::from_utf8_lossy(body).contains(&first.token[..12])));
    Ok(())
}
