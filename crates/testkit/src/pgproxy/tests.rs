//! The proxy on a real PostgreSQL.

use std::time::Duration;

use anyhow::Result;
use sqlx::{Connection as _, PgConnection};

use super::{Fault, Link, Matcher, PgProxy, When};
use crate::Postgres;

const TIMEOUT: Duration = Duration::from_secs(20);

async fn insert(url: &str, number: i32) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let mut transaction = connection.begin().await?;
    sqlx::query("INSERT INTO things VALUES ($1)").bind(number).execute(&mut *transaction).await?;
    transaction.commit().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_cut_held_or_silenced_before_or_after_the_server_has_executed_it() -> Result<()> {
    let postgres = Postgres::start().await?;
    let database = postgres.database().await?;
    let mut direct = database.connect().await?;
    sqlx::query("CREATE TABLE things (number int)").execute(&mut direct).await?;
    let mut count = async |number: i32| -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT count(*) FROM things WHERE number = $1")
            .bind(number)
            .fetch_one(&mut direct)
            .await?)
    };
    let proxy = PgProxy::in_front_of(postgres.facts().port).await?;
    let url = proxy.url(database.name());
    insert(&url, 1).await?;
    assert_eq!(count(1).await?, 1, "without a rule, the statement passes");

    let commit = || Matcher::commit_of("insert into things").nth(1);
    let cut = proxy.when(commit(), When::Before, Fault::Cut);
    assert!(insert(&url, 2).await.is_err());
    assert_eq!((cut.hits(), count(2).await?), (1, 0), "the server never saw the COMMIT");
    insert(&url, 3).await?;

    proxy.when(commit(), When::After, Fault::Cut);
    assert!(insert(&url, 4).await.is_err());
    assert_eq!(count(4).await?, 1, "it was committed, and the client does not know");

    let held = proxy.when(Matcher::statement("INSERT INTO things").nth(1), When::Before, Fault::Hold);
    let waiting = tokio::spawn({
        let url = url.clone();
        async move { insert(&url, 5).await }
    });
    held.wait_for_hits(1, TIMEOUT).await?;
    assert!(!waiting.is_finished());
    held.release();
    waiting.await??;
    assert_eq!(count(5).await?, 1);

    proxy.when(commit(), When::After, Fault::Silence);
    assert!(tokio::time::timeout(Duration::from_millis(300), insert(&url, 6)).await.is_err());
    assert_eq!(count(6).await?, 1);
    insert(&url, 7).await?;

    proxy.set_link(Link::Blackhole);
    assert!(tokio::time::timeout(Duration::from_millis(300), insert(&url, 8)).await.is_err());
    proxy.set_link(Link::Refusing);
    assert!(insert(&url, 8).await.is_err());
    proxy.heal();
    insert(&url, 9).await?;
    assert_eq!(count(8).await?, 0);
    Ok(())
}
