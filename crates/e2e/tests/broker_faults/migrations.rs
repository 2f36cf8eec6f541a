//! Row 50: a migration that is killed at each of its statements, and run again, ends in the same schema.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::broker::migrate;
use brokkr_testkit::pgproxy::{Fault, Matcher, When};
use brokkr_testkit::programs::program;
use brokkr_testkit::{Database, Launch, PgProxy, Postgres, Process, Scratch, eventually};

use crate::WAIT_TIMEOUT;
use crate::broker_pair::BrokerPair;
use brokkr_e2e::rounds;

/// Returns the whole schema as text.
async fn schema(database: &Database) -> Result<String> {
    let lines: Vec<String> = sqlx::query_scalar(
        "SELECT line FROM (
            SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) AS line
            FROM information_schema.columns WHERE table_schema = 'public'
            UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
            UNION ALL SELECT format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
                      WHERE connamespace = 'public'::regnamespace
            UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
            UNION ALL SELECT prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            UNION ALL SELECT format('migration %s %s', version, success) FROM _sqlx_migrations) AS everything
         WHERE line !~ '_[0-9]{8}|_p?[0-9]{4}_'
         ORDER BY line",
    )
    .fetch_all(&mut database.connect().await?)
    .await
    .context("cannot read the schema")?;
    Ok(lines.join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn row_50_a_migration_killed_at_each_step_and_run_again_ends_in_the_same_schema() -> Result<()> {
    let postgres = Postgres::start().await?;
    let clean = postgres.database().await?;
    migrate(&clean.url()).await?;
    migrate(&clean.url()).await?;
    let wanted = schema(&clean).await?;
    let (proxy, scratch) = (PgProxy::in_front_of(postgres.facts().port).await?, Scratch::new("migrations")?);
    let (mut kills, mut incomplete) = (0, 0);
    for step in (1..).step_by(rounds(5, 1)) {
        let database = postgres.database().await?;
        let when = if step % 2 == 0 { When::Before } else { When::After };
        let held = proxy.when(Matcher::any().nth(step), when, Fault::Hold);
        let url = proxy.url(database.name());
        let launch = Launch::new(format!("migrate-{step}"), program("brokkr-broker")?).args([
            "migrate",
            "--database-url",
            &url,
        ]);
        let process = Process::start(launch, scratch.path())?;
        let what = format!("step {step}, or the end");
        eventually(WAIT_TIMEOUT, &what, async || held.hits() > 0 || !process.is_running()).await?;
        if held.hits() == 0 {
            break;
        }
        process.kill9();
        held.discard();
        kills += 1;
        // The first statements come before the table of migrations exists.
        incomplete += usize::from(!schema(&database).await.is_ok_and(|left| left == wanted));
        for _ in 0..2 {
            migrate(&database.url()).await.with_context(|| format!("after a kill at step {step}"))?;
        }
        let found = schema(&database).await?;
        ensure!(found == wanted, "step {step} left another schema:\n{found}\n\nwanted:\n{wanted}");
    }
    println!("killed at {kills} steps, {incomplete} of them left an incomplete schema");
    ensure!(kills >= 3, "a migration has more than {kills} steps");
    ensure!(incomplete * 2 > kills, "only {incomplete} of {kills} kills interrupted a migration");
    Ok(())
}

/// The other process is held at different statements, with the locks that it has there.
#[tokio::test(flavor = "multi_thread")]
async fn row_50_replicas_keep_serving_while_others_migrate() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    let (proxy, scratch) =
        (PgProxy::in_front_of(pair.postgres.facts().port).await?, Scratch::new("migrations")?);
    let mut held_at = 0;
    for step in (1..).step_by(rounds(3, 1)) {
        let held = proxy.when(Matcher::any().nth(step), When::Before, Fault::Hold);
        let launch = Launch::new(format!("migrate-{step}"), program("brokkr-broker")?).args([
            "migrate",
            "--database-url",
            &proxy.url(pair.database.name()),
        ]);
        let process = Process::start(launch, scratch.path())?;
        let what = format!("step {step}, or the end");
        eventually(WAIT_TIMEOUT, &what, async || held.hits() > 0 || !process.is_running()).await?;
        if held.hits() == 0 {
            break;
        }
        held_at += 1;
        pair.wait_for_progress(2)
            .await
            .with_context(|| format!("while another process is at step {step}"))?;
        held.release();
        eventually(WAIT_TIMEOUT, "the migration to end", async || !process.is_running()).await?;
    }
    println!("held at {held_at} steps");
    ensure!(held_at >= 2, "a migration has more than {held_at} statements");
    pair.finish().await
}
