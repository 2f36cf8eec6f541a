//! An upgrade of three agents in waves: the second one cannot confirm it and goes back, the third is not reached.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::nodes::images::NEXT_AGENT_VERSION;
use brokkr_testkit::nodes::{Image, skipped};
use brokkr_testkit::{Scratch, eventually};
use serde_json::Value;

use super::shop::{DEADLINE, Shop, VERSION, terminal};
use crate::beside::BrokerBeside;

struct Shops {
    shops: [Shop; 3],
    /// The name of the next version, by digest.
    next: String,
    _scratch: Scratch,
}

impl Shops {
    async fn start() -> Result<Self> {
        let (first, second, third) =
            tokio::try_join!(Box::pin(terminal()), Box::pin(terminal()), Box::pin(terminal()))?;
        let scratch = Scratch::new("broker")?;
        let broker = Arc::new(BrokerBeside::start(&first.cluster, &scratch).await?);
        let (first, second, third) = tokio::try_join!(
            Shop::join("shop-1", first, broker.clone()),
            Shop::join("shop-2", second, broker.clone()),
            Shop::join("shop-3", third, broker)
        )?;
        Ok(Self { shops: [first, second, third], next: Image::next_agent()?.1, _scratch: scratch })
    }

    async fn types(&self, command: &str) -> Result<String> {
        self.shops[0].types(command).await
    }

    async fn json(&self, command: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.types(&format!("{command} -o json")).await?)?)
    }

    /// Begins an upgrade of all three, and returns its id.
    async fn upgrade(&self) -> Result<u64> {
        let command = format!(
            "brokkr agent upgrade --to {} --version {NEXT_AGENT_VERSION} --waves 1,2,100% --soak 10s",
            self.next
        );
        self.json(&command).await?["id"].as_u64().context("an id")
    }

    /// Waits until the upgrade is in this state.
    async fn is(&self, upgrade: u64, state: &str) -> Result<()> {
        eventually(DEADLINE * 2, &format!("the upgrade to be {state}"), async || {
            let shown = self.json(&format!("brokkr agent upgrade show {upgrade}")).await?;
            ensure!(shown["state"] == state, "{shown:#}");
            anyhow::Ok(())
        })
        .await
    }

    /// Returns the shops to which this upgrade was offered, in the order of their numbers: an upgrade that stops takes the offer back.
    async fn offered(&self, upgrade: u64) -> Result<Vec<&Shop>> {
        let rows = self.json(&format!("brokkr agent upgrade show {upgrade} --agents")).await?;
        let rows = rows["items"].as_array().context("rows")?.clone();
        let is_offered = |shop: &&Shop| {
            let was_offered = |row: &Value| row["released"] == true || !row["step"].is_null();
            rows.iter().any(|row| row["agent"] == shop.name.as_str() && was_offered(row))
        };
        Ok(self.shops.iter().filter(is_offered).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agent under two versions, which takes minutes to build; .ci/nightly runs it"]
async fn an_upgrade_stops_at_the_second_of_three_agents_which_keeps_its_version() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let site = Box::pin(Shops::start()).await?;
    let (former, _) = site.shops[0].deployed().await?;

    let upgrade = site.upgrade().await?;
    let first = eventually(DEADLINE, "the first agent to get the offer", async || {
        let offered = site.offered(upgrade).await?;
        ensure!(!offered.is_empty(), "no agent has it");
        anyhow::Ok(offered)
    })
    .await?;
    ensure!(first.len() == 1, "the first wave is one agent");
    let first = first[0];
    let others: Vec<&Shop> = site.shops.iter().filter(|shop| shop.name != first.name).collect();
    for shop in &others {
        shop.types("kubectl apply -f unconfirmable.yaml").await?;
    }
    ensure!(site.offered(upgrade).await?.len() == 1, "the first wave is not over yet");
    first.has(&site.next).await?;

    site.is(upgrade, "stopped").await?;
    let offered = site.offered(upgrade).await?;
    ensure!(offered.len() == 2, "the third was not reached");
    let second = others.iter().find(|shop| offered.iter().any(|offered| offered.name == shop.name));
    let second = second.context("the second one")?;
    let third = others.iter().find(|shop| shop.name != second.name).context("the third one")?;
    for shop in [second, third] {
        shop.has(&former).await?;
        shop.serves(VERSION).await?;
        shop.repairs().await?;
    }
    let (_, annotations) = third.deployed().await?;
    ensure!(annotations["deployment.kubernetes.io/revision"] == "2", "it was never changed: {annotations}");
    first.serves(NEXT_AGENT_VERSION).await?;
    first.repairs().await?;

    let shown = site.types(&format!("brokkr agent upgrade show {upgrade}")).await?;
    ensure!(shown.contains("stopped: 1 agent is bad, 0 allowed"), "{shown}");
    let agents = site.types(&format!("brokkr agent upgrade show {upgrade} --agents")).await?;
    println!("{shown}\n{agents}");
    let why = "the new version was not ready within 40 s after the image was changed";
    let row = agents.lines().find(|line| line.contains(&second.name)).context("a row")?;
    ensure!(row.contains("restored") && row.contains(why), "{agents}");
    for command in ["brokkr agent show NAME", "brokkr why agent/NAME"] {
        let shown = site.types(&command.replace("NAME", &second.name)).await?;
        println!("{shown}");
        ensure!(shown.contains("the former image was restored") && shown.contains(why), "{shown}");
    }

    // The cause is gone, and the same version is offered again.
    for shop in &others {
        shop.types("kubectl delete -f unconfirmable.yaml").await?;
    }
    let again = site.upgrade().await?;
    site.is(again, "completed").await?;
    for shop in &site.shops {
        shop.has(&site.next).await?;
        shop.serves(NEXT_AGENT_VERSION).await?;
        shop.repairs().await?;
    }
    Ok(())
}
