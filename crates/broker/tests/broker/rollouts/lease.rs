//! One replica at a time takes the steps of rollouts.

use anyhow::Result;
use brokkr_api::report::Transition;
use brokkr_broker::domain::rollout::survey::Contacts;
use brokkr_broker::store::leases::Lease;
use brokkr_broker::tasks::rollouts::look;

use super::Fleet;

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_has_lost_its_lease_takes_no_step() -> Result<()> {
    let fleet = Fleet::new().await?;
    let canary = fleet.wait_for(1).await?;
    // Another replica takes over, and then does nothing.
    let mut connection = fleet.harness.database.connect().await?;
    let token: i64 = sqlx::query_scalar(
        "UPDATE leases SET holder = gen_random_uuid(), token = token + 1, expires_at = now() + interval '1 hour'
         WHERE name = 'rollouts' RETURNING token",
    )
    .fetch_one(&mut connection)
    .await?;
    fleet.report(canary[0], Transition::Healthy).await?;
    let broker = &fleet.harness.server.broker;
    let look_with = async |token| {
        let lease = Lease { name: "rollouts", token };
        look(broker, &broker.pool, lease, &Contacts::default(), "default", fleet.stack).await
    };
    assert!(!look_with(token - 1).await?, "the lease is lost");
    assert_eq!(fleet.with_second().await?, canary, "nothing was released");
    assert!(look_with(token).await?);
    fleet.wait_for(2).await?;
    Ok(())
}
