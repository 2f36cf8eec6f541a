//! Rows 5 to 7, 10, 11 and 14: failures of PostgreSQL.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_api::{Position, SequenceId};
use brokkr_client::Poll;
use brokkr_testkit::history::Outcome;
use brokkr_testkit::{Attempt, Bystander, Scratch, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::broker_pair::{BrokerPair, Setup};
use crate::clients::{ChangeRequest, object};
use crate::{RECOVERY_TIMEOUT, WAIT_TIMEOUT};
use brokkr_e2e::{rounds, runs_in_full};

#[tokio::test(flavor = "multi_thread")]
async fn row_05_a_long_transaction_delays_the_outbox_and_nothing_is_skipped() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    // A stack of its own: no earlier change of it is still in the outbox.
    pair.caller.put_stack(0, "late").await?;
    pair.caller.send_until_known(0, ChangeRequest::target("late", &["group=a"])).await;
    let submit = async || object(&pair.caller.send_until_known(0, ChangeRequest::submit("late", 100)).await);
    let first = submit().await?;
    wait_until_shown(&pair, first).await?;

    let elsewhere = pair.postgres.database().await?;
    let mut foreign = elsewhere.connect().await?;
    sqlx::query("CREATE TABLE things (number int)").execute(&mut foreign).await?;
    let mut open = foreign.begin().await?;
    sqlx::query("INSERT INTO things VALUES (1)").execute(&mut *open).await?;
    // Submissions continue; waiting polls keep waiting.
    let delayed = submit().await?;
    pair.wait_for_progress_within(rounds(3, 20), WAIT_TIMEOUT).await?;
    for replica in 0..2 {
        let view = pair.agents[0].view(replica).await?;
        let shown: Vec<_> = view.stacks.iter().map(|(_, sequence)| *sequence).collect();
        ensure!(shown.contains(&first), "replica {replica} shows {shown:?}, not the delayed {first}");
    }
    if runs_in_full() {
        for replica in &pair.replicas {
            replica.wait_for_log("an open transaction delays the outbox", WAIT_TIMEOUT).await?;
        }
    }
    open.commit().await?;
    wait_until_shown(&pair, delayed).await?;
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

/// Waits until both replicas show this version to the first agent.
async fn wait_until_shown(pair: &BrokerPair, sequence: SequenceId) -> Result<()> {
    eventually(RECOVERY_TIMEOUT, &format!("both replicas to show {sequence}"), async || {
        for replica in 0..2 {
            let view = pair.agents[0].view(replica).await?;
            let is_shown = view.stacks.iter().any(|(_, shown)| *shown == sequence);
            ensure!(is_shown, "L1: replica {replica} shows {:?}", view.stacks);
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_a_killed_backend_resets_every_session_and_both_replicas_are_ready_within_ten_seconds()
-> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for _ in 0..rounds(1, 5) {
        let victim: i32 = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'brokkr-broker' AND pid <> pg_backend_pid() LIMIT 1",
        )
        .fetch_one(&mut pair.connect_directly().await?)
        .await?;
        kill(Pid::from_raw(victim), Signal::SIGKILL)?;
        // All clients are disconnected, the server recovers, all clients reconnect.
        eventually(RECOVERY_TIMEOUT, "the server to be back", async || pair.connect_directly().await.is_ok())
            .await?;
        for replica in 0..2 {
            pair.wait_until_ready(replica, Duration::from_secs(10)).await?;
        }
        pair.wait_for_progress(3).await?;
    }
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_07_a_restarted_or_crashed_server_loses_nothing_and_polls_are_answered_meanwhile() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for round in 0..rounds(2, 6) {
        if round % 2 == 0 {
            pair.server()?.kill9().await?;
        } else {
            pair.server()?.process().stop_by(Signal::SIGINT).await?;
        }
        for agent in &pair.agents {
            let polled = agent.poll(round % 2, &agent.ask(Position::default(), None, Duration::ZERO)).await;
            ensure!(matches!(polled, Ok(Poll::Changed { .. })), "from memory: {polled:?}");
        }
        let written = pair.caller.attempt(round % 2, &ChangeRequest::submit("web", 10)).await;
        ensure!(matches!(written, Outcome::Unknown(_)), "no write is acknowledged: {written:?}");
        pair.server()?.start_again().await?;
        for replica in 0..2 {
            pair.wait_until_ready(replica, WAIT_TIMEOUT).await?;
        }
        pair.wait_for_progress(3).await?;
    }
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_a_read_only_database_refuses_writes_answers_reads_and_recovers_by_itself() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.caller.put_stack(0, "unchanged").await?;
    pair.start_load().await?;
    let mut direct = pair.connect_directly().await?;
    sqlx::query("SET default_transaction_read_only = off").execute(&mut direct).await?;
    set_and_reload(&mut direct, "ALTER SYSTEM SET default_transaction_read_only = on").await?;
    refused_and_readable(&pair).await?;
    // Changes that began before may still be acknowledged, now or when they are repeated. New ones are not.
    for replica in 0..2 {
        for change in [
            ChangeRequest::submit("unchanged", 100),
            ChangeRequest::target("unchanged", &["group=a"]),
            ChangeRequest::delete("unchanged"),
        ] {
            let outcome = pair.caller.attempt(replica, &change).await;
            let is_refused = matches!(&outcome, Outcome::Unknown(why) if why.contains("503"));
            ensure!(is_refused, "{change:?} on a read-only database: {outcome:?}");
        }
    }
    set_and_reload(&mut direct, "ALTER SYSTEM RESET default_transaction_read_only").await?;
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_a_full_disk_refuses_writes_answers_reads_and_recovers_by_itself() -> Result<()> {
    let scratch = Scratch::new("small-disk")?;
    let Some(disk) = SmallDisk::mount(scratch.path())? else {
        ensure!(!geteuid().is_root(), "root cannot mount a file system");
        println!("not run: only root can mount a file system");
        return Ok(());
    };
    let setup = Setup { bytes: 30_000, ..Setup::default() };
    let mut pair = BrokerPair::start_with(setup, async |_, database| {
        let mut direct = PgConnection::connect(&database.url().replace(database.name(), "postgres")).await?;
        let location = disk.tablespace()?;
        for statement in [
            format!("CREATE TABLESPACE small LOCATION '{location}'"),
            format!("ALTER DATABASE {} SET TABLESPACE small", database.name()),
        ] {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut direct).await?;
        }
        Ok(())
    })
    .await?;
    pair.start_load().await?;
    for _ in 0..rounds(1, 4) {
        disk.fill()?;
        refused_and_readable(&pair).await?;
        ensure!(disk.is_full(), "it was full all the time");
        disk.relieve()?;
        pair.wait_for_progress(3).await?;
    }
    pair.finish().await
    // The server is dropped before its disk.
}

/// Requires that writes get 503 at both replicas, and that reads and polls succeed.
async fn refused_and_readable(pair: &BrokerPair) -> Result<()> {
    for replica in 0..2 {
        let before = pair.unknown_outcomes_at(replica, "503");
        eventually(RECOVERY_TIMEOUT, &format!("replica {replica} to refuse writes"), async || {
            pair.unknown_outcomes_at(replica, "503") > before
        })
        .await?;
        let (status, _) = pair.caller.get(replica, "stacks").await?;
        assert_eq!(status, 200, "reads work");
        let agent = &pair.agents[replica];
        let polled = agent.poll(replica, &agent.ask(Position::default(), None, Duration::ZERO)).await?;
        ensure!(matches!(polled, Poll::Changed { .. }), "{polled:?}");
    }
    assert_eq!(
        pair.unknown_outcomes("500 Internal"),
        0,
        "a database that refuses writes is not an internal error of the broker"
    );
    Ok(())
}

async fn set_and_reload(connection: &mut PgConnection, statement: &'static str) -> Result<()> {
    sqlx::query(statement).execute(&mut *connection).await?;
    sqlx::query("SELECT pg_reload_conf()").execute(connection).await?;
    Ok(())
}

/// A file system of a fixed size, in memory.
struct SmallDisk {
    folder: std::path::PathBuf,
}

impl SmallDisk {
    fn mount(scratch: &Path) -> Result<Option<Self>> {
        let folder = scratch.join("disk");
        fs::create_dir_all(&folder)?;
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs"])
            .arg(&folder)
            .output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        Ok(mounted.then_some(Self { folder }))
    }

    /// Creates a folder on it that belongs to PostgreSQL's user.
    fn tablespace(&self) -> Result<String> {
        let location = self.folder.join("tablespace");
        fs::create_dir_all(&location)?;
        if let Some(user) = User::from_name("postgres")? {
            chown(&location, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(location.to_string_lossy().into_owned())
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.folder.join("ballast")
    }

    /// Writes until nothing fits any more.
    fn fill(&self) -> Result<()> {
        use std::io::Write as _;
        let mut file = fs::File::create(self.ballast())?;
        for block in [vec![0u8; 1 << 20], vec![0u8; 4096]] {
            while file.write_all(&block).is_ok() {}
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        fs::write(self.folder.join("probe"), vec![0u8; 65_536]).is_err()
    }

    fn relieve(&self) -> Result<()> {
        let _ = fs::remove_file(self.folder.join("probe"));
        fs::remove_file(self.ballast()).context("cannot remove the ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may not have closed its files yet.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.folder).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_11_with_every_connection_busy_requests_fail_soon_and_polls_are_answered_at_once() -> Result<()> {
    let setup = Setup { arguments: &["--database-connections=4"], ..Setup::default() };
    let mut pair = BrokerPair::start_with(setup, async |_, _| Ok(())).await?;
    pair.start_load().await?;
    let mut direct = pair.connect_directly().await?;
    let mut lock = direct.begin().await?;
    sqlx::query("SELECT FROM stacks WHERE name = 'web' FOR UPDATE").execute(&mut *lock).await?;
    let slow: Vec<_> = (0..10)
        .map(|number| {
            let caller = pair.caller.clone();
            tokio::spawn(
                async move { caller.send_until_known(number, ChangeRequest::submit("web", 100)).await },
            )
        })
        .collect();
    // The control does not use the connections of the replicas.
    let url = pair.database.url();
    let bystander = Bystander::start(move || {
        let url = url.clone();
        async move { drop(PgConnection::connect(&url).await) }
    });
    let started = Instant::now();
    let mut not_ready = 0;
    while started.elapsed() < Duration::from_secs(rounds(6, 20) as u64) {
        for replica in 0..2 {
            let agent = &pair.agents[replica];
            let asked = Instant::now();
            let polled = agent.poll(replica, &agent.ask(Position::default(), None, Duration::ZERO)).await?;
            ensure!(matches!(polled, Poll::Changed { .. }), "{polled:?}");
            let (took, limit) = (asked.elapsed(), bystander.allows(Duration::from_secs(1)));
            ensure!(took < limit, "a poll waited {took:?}, allowed {limit:?}");
            let asked = Instant::now();
            let (status, _) = pair.caller.get(replica, "/readyz").await?;
            let (alive, _) = pair.caller.get(replica, "/livez").await?;
            let (took, limit) = (asked.elapsed(), bystander.allows(Duration::from_secs(4)));
            ensure!(alive == 200 && took < limit, "{alive} after {took:?}, allowed {limit:?}");
            not_ready += usize::from(status == 503);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(bystander);
    println!("not ready {not_ready} times");
    assert!(pair.unknown_outcomes("503") > 0, "without a connection the response is 503");
    lock.rollback().await?;
    for one in slow {
        object(&tokio::time::timeout(WAIT_TIMEOUT, one).await??)?;
    }
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_14_an_outbox_reader_that_loses_its_connection_repeatedly_misses_nothing() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for round in 0..rounds(8, 40) {
        pair.proxies[round % 2].cut_all();
        pair.wait_for_progress_at((round + 1) % 2, 2).await?;
    }
    // One replica cannot reach the database for a while.
    pair.proxies[1].set_link(brokkr_testkit::pgproxy::Link::Refusing);
    pair.proxies[1].cut_all();
    pair.wait_for_progress_at(0, 10).await?;
    pair.wait_until_degraded(1).await?;
    pair.proxies[1].heal();
    let newest = pair.caller.send_until_known(0, ChangeRequest::submit("web", 100)).await;
    let newest = object(&newest)?;
    let agent = &pair.agents[0];
    eventually(RECOVERY_TIMEOUT, "the other replica to show it", async || match agent.view(1).await {
        Ok(view) if view.stacks.iter().any(|(_, sequence)| *sequence >= newest) => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;
    pair.wait_for_progress(3).await?;
    pair.finish().await
}
