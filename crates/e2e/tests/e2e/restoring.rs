//! The procedure of docs/restore.md, on a database that is really restored while agents have seen newer state.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::postgres::Durability;
use brokkr_testkit::process::{ShowLog, run};
use brokkr_testkit::programs::program;
use brokkr_testkit::{
    Agent, AgentOptions, Attempt, Broker, Cluster, Fleet, Launch, Output, Postgres, Scratch, eventually,
    unique,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::pages::page::{Page, Setting};
use crate::pages::root;
use brokkr_testkit::world::{WAIT_TIMEOUT, config_map_yaml, namespace_yaml};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);

/// Two replicas, an agent at each, on a PostgreSQL that can be restored.
struct Rehearsal {
    // Dropped in this order: agents, replicas, database.
    shops: [Agent; 2],
    second: Broker,
    fleet: Fleet,
    postgres: Arc<Postgres>,
    cluster: Arc<Cluster>,
    client: Client,
    spaces: [String; 2],
}

impl Rehearsal {
    async fn start() -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let postgres = Arc::new(Postgres::start_with(Durability::Full).await?);
        let fleet = Fleet::start_on(Arc::clone(&postgres), ShowLog::Always).await?;
        let second = fleet.replica().await?;
        let at_second = AgentOptions { broker_url: Some(second.url()), ..AgentOptions::default() };
        let one = fleet.join("shop-1", &[("shop", "1")], &cluster).await?;
        let two = fleet.join_with("shop-2", &[("shop", "2")], &cluster, &at_second).await?;
        let client = cluster.admin().await?;
        let spaces = [unique("space"), unique("space")];
        Ok(Self { shops: [one, two], second, fleet, postgres, cluster, client, spaces })
    }

    /// Delivers ConfigMaps to a shop, and waits.
    async fn apply(&self, stack: &str, shop: usize, maps: &[(&str, &str)]) -> Result<()> {
        let yaml = self.manifest(stack, shop, maps);
        self.fleet.apply(stack, &format!("shop={shop}"), &yaml).await.map(|_| ())
    }

    /// Returns the namespace of a stack. Each has its own, so that deleting a stack does not affect another.
    fn space(&self, stack: &str, shop: usize) -> String {
        format!("{}-{stack}", self.spaces[shop - 1])
    }

    fn manifest(&self, stack: &str, shop: usize, maps: &[(&str, &str)]) -> String {
        let space = self.space(stack, shop);
        let maps = maps.iter().map(|(name, value)| config_map_yaml(&space, name, value));
        namespace_yaml(&space) + &maps.collect::<String>()
    }

    fn maps(&self, stack: &str, shop: usize) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.space(stack, shop))
    }

    async fn edit(&self, stack: &str, shop: usize, name: &str, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "data": { "value": value } }));
        self.maps(stack, shop).patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn wait_for_value(&self, stack: &str, shop: usize, name: &str, wanted: Option<&str>) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("{name} of {stack} to be {wanted:?}"), async || {
            match self.maps(stack, shop).get_opt(name).await {
                Ok(map) if map.as_ref().and_then(value).as_deref() == wanted => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    /// Returns the value and sequence of everything that Brokkr has delivered.
    async fn everything(&self) -> Result<BTreeMap<String, (Option<String>, i64)>> {
        let all: Api<ConfigMap> = Api::all(self.client.clone());
        let mut found = BTreeMap::new();
        for map in all.list(&kube::api::ListParams::default().labels("brokkr.io/agent")).await? {
            let space = map.metadata.namespace.clone().unwrap_or_default();
            if self.spaces.iter().any(|ours| space.starts_with(ours.as_str())) {
                let name = map.metadata.name.clone().unwrap_or_default();
                found.insert(format!("{space}/{name}"), (value(&map), sequence(&map)));
            }
        }
        Ok(found)
    }

    /// Returns every sequence id that the broker knows, with its checksum.
    async fn ids(&self) -> Result<BTreeMap<i64, String>> {
        let mut connection = self.fleet.database().connect().await?;
        let rows: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT sequence_id, checksum FROM deployment_objects")
                .fetch_all(&mut connection)
                .await?;
        Ok(rows.into_iter().map(|(id, checksum)| (id, format!("{checksum:?}"))).collect())
    }

    /// Runs a line of the page as an operator would.
    async fn types(&self, command: &str, folder: &Path) -> Result<Output> {
        let programs = program("brokkr")?;
        let programs = programs.parent().context("a folder of programs")?;
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let launch = Launch::new("bash", "/bin/bash")
            .args(["-c", command])
            .folder(folder)
            .env("PATH", &path)
            .env("XDG_CONFIG_HOME", self.fleet.cli.config_home().display().to_string())
            .env("BROKKR_DATABASE_URL", self.fleet.database().url());
        run(launch, COMMAND_TIMEOUT).await
    }
}

fn value(map: &ConfigMap) -> Option<String> {
    map.data.as_ref()?.get("value").cloned()
}

fn sequence(map: &ConfigMap) -> i64 {
    let annotations = map.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get("brokkr.io/sequence")?.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn a4_a9_e4_a_restored_database_rolls_no_agent_back_and_every_lost_stack_can_be_settled() -> Result<()>
{
    let rehearsal = Rehearsal::start().await?;
    let (fleet, server) = (&rehearsal.fleet, rehearsal.postgres.server().context("a private server")?);
    rehearsal.apply("web", 1, &[("one", "1"), ("old", "1")]).await?;
    rehearsal.apply("side", 2, &[("side", "1")]).await?;
    rehearsal.apply("doomed", 1, &[("doomed", "1")]).await?;
    // A stack without a target yet.
    let late = rehearsal.manifest("late", 1, &[("late", "1")]);
    fleet.submit("late", "shop=9", &late).await?;
    let backup = server.back_up().await?;

    // Changes that will be lost: versions, stacks, a target, a deletion.
    rehearsal.apply("web", 1, &[("one", "2"), ("two", "2")]).await?;
    rehearsal.apply("side", 2, &[("side", "2")]).await?;
    rehearsal.apply("fresh", 1, &[("fresh", "1")]).await?;
    rehearsal.apply("extra", 2, &[("extra", "1")]).await?;
    let targets = json!({ "selectors": ["shop=1"] });
    fleet
        .request(http::Method::PUT, "/api/v1/stacks/late/targets")
        .json(&targets)
        .send()
        .await?
        .error_for_status()?;
    rehearsal.wait_for_value("late", 1, "late", Some("1")).await?;
    fleet.delete("doomed").await?;
    let (before, ids) = (rehearsal.everything().await?, rehearsal.ids().await?);
    assert_eq!(before.len(), 6, "{before:?}");

    let mark = rehearsal.cluster.audit().mark()?;
    fleet.broker.kill9();
    rehearsal.second.kill9();
    server.restore(&backup).await?;
    fleet.broker.start_again().await?;
    rehearsal.second.start_again().await?;
    eventually(WAIT_TIMEOUT, "the broker to be on hold", async || match fleet.get("/api/v1/system").await {
        Ok(system) if !system["hold"].is_null() && system["agents_to_report"] == 0 => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;
    let refused = fleet.brokkr(["stack", "delete", "web", "--yes"]).await?;
    assert!(
        refused.stderr.contains("BRK3005") && refused.stderr.contains("epoch raise"),
        "{}",
        refused.stderr
    );

    // Agents keep and repair their stacks, even after a restart, although the database has lost them.
    rehearsal.shops[0].restart()?;
    rehearsal.edit("web", 1, "two", "by hand").await?;
    rehearsal.edit("fresh", 1, "fresh", "by hand").await?;
    rehearsal.edit("side", 2, "side", "by hand").await?;
    rehearsal.wait_for_value("web", 1, "two", Some("2")).await?;
    rehearsal.wait_for_value("fresh", 1, "fresh", Some("1")).await?;
    rehearsal.wait_for_value("side", 2, "side", Some("2")).await?;
    assert_eq!(rehearsal.everything().await?, before, "on hold, everything is as it was");

    // The author's files, as they were before the restore.
    let folder = Scratch::new("restoring")?;
    folder.write("web.yaml", rehearsal.manifest("web", 1, &[("one", "2"), ("two", "2")]))?;
    folder.write("late.yaml", &late)?;
    folder.write("fresh.yaml", rehearsal.manifest("fresh", 1, &[("fresh", "1")]))?;

    // The commands of the page, one by one.
    let page = Page::read(&root()?, &root()?.join("docs/restore.md"))?;
    assert_eq!(page.setting, Some(Setting::Restoring));
    let commands = page.commands();
    let mut outputs: BTreeMap<&str, String> = BTreeMap::new();
    for command in commands.iter().map(|command| command.text.as_str()) {
        let output = rehearsal
            .types(command, folder.path())
            .await?
            .ok()
            .with_context(|| format!("docs/restore.md: {command}"))?;
        if command == "brokkr admin ahead" {
            // Between raise and settlement, agents keep their stacks, and the deleted stack is back.
            rehearsal.wait_for_value("doomed", 1, "doomed", Some("1")).await?;
            let mut now = rehearsal.everything().await?;
            now.retain(|name, _| !name.contains("-doomed/"));
            assert_eq!(now, before, "raised, and no agent went back");
        }
        if command.contains("settle fresh --recreate") {
            // The stack is back under its old id, without content: its holders keep what they have.
            let status = rehearsal.types("brokkr admin ahead", folder.path()).await?.ok()?;
            assert!(status.stdout.contains("fresh"), "until the author submits: {}", status.stdout);
            rehearsal.wait_for_value("fresh", 1, "fresh", Some("1")).await?;
        }
        outputs.insert(command, output.stdout);
    }
    assert!(outputs["brokkr-broker epoch raise --dry-run"].contains("nothing was changed"), "{outputs:?}");
    assert!(
        outputs["brokkr admin ahead"].contains("web") && outputs["brokkr admin ahead"].contains("side"),
        "{outputs:?}"
    );
    assert!(!outputs["brokkr admin ahead"].contains("fresh"), "{outputs:?}");
    let unknown = &outputs["brokkr admin unknown"];
    assert!(unknown.contains("fresh") && unknown.contains("extra") && !unknown.contains("web"), "{unknown}");
    let unconfirmed = &outputs["brokkr admin unconfirmed"];
    assert!(unconfirmed.contains("late") && !unconfirmed.contains("web"), "{unconfirmed}");
    let status = &outputs["brokkr admin status"];
    assert!(status.contains("2 targets: added by brokkr admin settle"), "{status}");

    // Everything converges to the chosen settlement.
    rehearsal.wait_for_value("side", 2, "side", Some("1")).await?;
    rehearsal.wait_for_value("extra", 2, "extra", None).await?;
    rehearsal.wait_for_value("doomed", 1, "doomed", None).await?;
    rehearsal.wait_for_value("web", 1, "one", Some("2")).await?;
    for (stack, shop) in [("web", "shop-1"), ("side", "shop-2"), ("fresh", "shop-1"), ("late", "shop-1")] {
        eventually(WAIT_TIMEOUT, &format!("{stack} to be healthy on {shop}"), async || {
            match fleet.get(&format!("/api/v1/stacks/{stack}/status")).await {
                Ok(page) if is_healthy(&page, shop) => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await?;
    }
    let after = rehearsal.everything().await?;
    for (name, (_, sequence)) in &after {
        let earlier = before.get(name).map_or(0, |(_, sequence)| *sequence);
        assert!(*sequence >= earlier, "{name} went back from {earlier} to {sequence}");
    }
    let gone: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    assert!(gone.len() == 1 && gone[0].ends_with("-extra/extra"), "only extra is deleted: {gone:?}");

    // No id is used twice, and new ones are above all others.
    let highest = ids.keys().max().copied().context("ids")?;
    for (id, checksum) in rehearsal.ids().await? {
        assert!(ids.get(&id).is_none_or(|earlier| *earlier == checksum), "{id} was used twice");
        // New ids begin a million above the highest id that an agent still has. Agents no longer have the ids
        // of removed stacks, so the gap above `highest` may be smaller by up to the number of ids.
        let gap = 1_000_000 - i64::try_from(ids.len())?;
        assert!(ids.contains_key(&id) || id > highest + gap, "{id} is below the gap");
    }
    rehearsal.apply("web", 1, &[("one", "3")]).await?;
    rehearsal.wait_for_value("web", 1, "two", None).await?;

    // According to the audit log, agents deleted only what the page removed and what web no longer has.
    for shop in &rehearsal.shops {
        for request in shop.requests(mark)? {
            let deleted = request.verb == "delete" && request.resource == "configmaps" && request.code < 300;
            let allowed = ["extra", "doomed", "two"].contains(&request.name.as_str());
            assert!(!deleted || allowed, "{request:?}");
        }
    }
    Ok(())
}

fn is_healthy(page: &Value, shop: &str) -> bool {
    let rows = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().any(|row| {
        row["agent_name"] == shop
            && row["state"].as_str().is_some_and(|state| state.eq_ignore_ascii_case("healthy"))
    })
}
