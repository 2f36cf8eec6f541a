//! Row 18: replicas with wrong clocks, each in another direction.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::Clock;
use brokkr_testkit::history::Outcome;

use crate::broker_pair::BrokerPair;
use brokkr_e2e::rounds;

#[tokio::test(flavor = "multi_thread")]
async fn row_18_clocks_ten_minutes_off_reject_no_agent_and_change_no_order() -> Result<()> {
    let clock = Clock::make().await?;
    let mut pair = BrokerPair::start().await?;
    for (replica, shift) in pair.replicas.iter_mut().zip([600, -600]) {
        let variables = clock.shifted(shift);
        replica.relaunch(|launch| launch.envs(variables)).await?;
    }
    for (replica, shift) in [(0, 600), (1, -600)] {
        let answer = pair.caller.request(replica, reqwest::Method::GET, "whoami").send().await?;
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok()).context("a date")?;
        let date_time = jiff::fmt::rfc2822::parse(date)?.timestamp();
        let off = date_time.as_second() - jiff::Timestamp::now().as_second();
        ensure!((off - shift).abs() < 60, "replica {replica} is {off} s off: the shift had no effect");
        ensure!(answer.status() == 200, "a token's expiry is checked against the database's clock");
    }
    pair.start_load().await?;
    pair.wait_for_progress_within(rounds(15, 100), crate::WAIT_TIMEOUT).await?;
    for agent in &pair.agents {
        for replica in 0..2 {
            let view = agent.view(replica).await;
            let view = view.with_context(|| format!("replica {replica} rejects {}", agent.name))?;
            let reports: Vec<_> =
                view.stacks.iter().map(|(stack, sequence)| agent.applied(*stack, *sequence)).collect();
            let outcome = agent.send_reports_until_known(replica, &reports).await;
            ensure!(matches!(outcome, Outcome::Acknowledged(_)), "{}: {outcome:?}", agent.name);
        }
    }
    pair.finish().await
}
