//! Row 18: replicas with wrong clocks, each in another direction.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::Clock;

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
    pair.finish().await
}
