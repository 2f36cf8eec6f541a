//! Random pairs of faults: two at the same time under load; then everything heals, both replicas make progress, and the history
//! has to be consistent. Faults that are harmless alone are not always harmless together.
//!
//! Each pair prints how many of its two faults were met; `cargo xtask faults broker` counts those that met both.
//! `BROKKR_FAULT_PAIRS` sets the number of pairs; `BROKKR_SEED` replays a run.

use std::time::Duration;

use anyhow::{Result, ensure};
use brokkr_testkit::pgproxy::{Fault, Link, Matcher, When};
use brokkr_testkit::{eventually, seed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::{Connection as _, PgConnection};

use crate::WAIT_TIMEOUT;
use crate::broker_pair::BrokerPair;

/// The default number of pairs, which keeps an ordinary run short.
const PAIRS: usize = 2;
/// The duration of a fault that does not end by itself.
const FAULT_DURATION: Duration = Duration::from_secs(3);
const WRITES: [&str; 4] = [
    "insert into deployment_objects",
    "insert into events",
    "insert into outbox",
    "insert into idempotency_keys",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InjectedFault {
    KillReplica,
    PauseReplica,
    CutAfterCommit,
    CutBeforeCommit,
    CutStatement,
    SilentConnection,
    SilentLink,
    NoLink,
    SlowStatements,
    KillBackend,
    TerminateBackends,
    CrashServer,
    ReadOnly,
    OpenTransaction,
    LockedStack,
}

const ALL: [InjectedFault; 15] = [
    InjectedFault::KillReplica,
    InjectedFault::PauseReplica,
    InjectedFault::CutAfterCommit,
    InjectedFault::CutBeforeCommit,
    InjectedFault::CutStatement,
    InjectedFault::SilentConnection,
    InjectedFault::SilentLink,
    InjectedFault::NoLink,
    InjectedFault::SlowStatements,
    InjectedFault::KillBackend,
    InjectedFault::TerminateBackends,
    InjectedFault::CrashServer,
    InjectedFault::ReadOnly,
    InjectedFault::OpenTransaction,
    InjectedFault::LockedStack,
];

#[tokio::test(flavor = "multi_thread")]
async fn row_pairs_by_seed() -> Result<()> {
    let seed = seed();
    let pairs = std::env::var("BROKKR_FAULT_PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(PAIRS);
    let mut failed = Vec::new();
    let mut pair = BrokerPair::start().await?;
    for number in 0..pairs {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let first = random.random_range(0..ALL.len());
        let second = (first + random.random_range(1..ALL.len())) % ALL.len();
        let faults = [ALL[first], ALL[second]];
        let what = format!("pair {number}: {:?} + {:?}", faults[0], faults[1]);
        println!("{what}");
        let mut met = [false; 2];
        let outcome = run_pair(&mut pair, faults, &mut random, &mut met).await;
        // `cargo xtask faults` reads these two lines.
        println!("pair {number}: met {} of 2 faults", met.iter().filter(|met| **met).count());
        if let Err(error) = outcome {
            println!("pair {number}: failed");
            failed.push(format!("{what}: {error:#}"));
            // Otherwise the violation would be found again in every later history.
            pair = BrokerPair::start().await?;
        }
    }
    anyhow::ensure!(failed.is_empty(), "seed {seed}:\n{}", failed.join("\n\n"));
    Ok(())
}

/// Injects two faults, and records which of them were met before the state afterwards is checked.
async fn run_pair(
    pair: &mut BrokerPair,
    faults: [InjectedFault; 2],
    random: &mut StdRng,
    met: &mut [bool; 2],
) -> Result<()> {
    pair.start_load().await?;
    let (here, there) = (random.random_range(0..2), random.random_range(0..2));
    let nth = random.random_range(1..4);
    let (first, second) =
        tokio::join!(inject(pair, faults[0], here, nth), inject(pair, faults[1], there, nth));
    for (number, outcome) in [first, second].into_iter().enumerate() {
        // One fault may prevent the other, for instance a crashed server. Such a pair is counted apart.
        match outcome {
            Ok(()) => met[number] = true,
            Err(error) => println!("  {:?}: {error:#}", faults[number]),
        }
    }
    for proxy in &pair.proxies {
        proxy.heal();
    }
    for replica in 0..2 {
        pair.wait_until_ready(replica, WAIT_TIMEOUT).await?;
    }
    pair.wait_for_progress_within(3, WAIT_TIMEOUT).await?;
    pair.check_history().await
}

/// Injects one fault at a replica, and ends it. `nth` selects the kind of write, and how many are hit. Fails if the fault was
/// not met.
async fn inject(pair: &BrokerPair, fault: InjectedFault, at: usize, nth: usize) -> Result<()> {
    let proxy = &pair.proxies[at];
    let write = Matcher::statement(WRITES[nth]);
    match fault {
        InjectedFault::KillReplica => {
            pair.replicas[at].kill9();
            tokio::time::sleep(Duration::from_millis(300)).await;
            pair.replicas[at].start_again().await?;
        }
        InjectedFault::PauseReplica => {
            pair.replicas[at].pause()?;
            tokio::time::sleep(FAULT_DURATION).await;
            pair.replicas[at].resume()?;
        }
        InjectedFault::CutAfterCommit => {
            proxy
                .when(Matcher::commit_of(WRITES[0]).first(nth), When::After, Fault::Cut)
                .wait_for_hits(1, WAIT_TIMEOUT)
                .await?;
        }
        InjectedFault::CutBeforeCommit => {
            proxy
                .when(Matcher::commit_of(WRITES[0]).first(nth), When::Before, Fault::Cut)
                .wait_for_hits(1, WAIT_TIMEOUT)
                .await?;
        }
        InjectedFault::CutStatement => {
            proxy.when(write.first(nth), When::After, Fault::Cut).wait_for_hits(1, WAIT_TIMEOUT).await?;
        }
        InjectedFault::SilentConnection => {
            proxy.when(write.nth(1), When::After, Fault::Silence).wait_for_hits(1, WAIT_TIMEOUT).await?;
        }
        InjectedFault::SilentLink => {
            let silenced = proxy.connections();
            proxy.set_link(Link::Blackhole);
            tokio::time::sleep(FAULT_DURATION).await;
            proxy.set_link(Link::Up);
            ensure!(silenced > 0, "no connection was open");
        }
        InjectedFault::NoLink => {
            let closed = proxy.connections();
            proxy.set_link(Link::Refusing);
            proxy.cut_all();
            tokio::time::sleep(FAULT_DURATION).await;
            proxy.set_link(Link::Up);
            ensure!(closed > 0, "no connection was open");
        }
        InjectedFault::SlowStatements => {
            let slow = Fault::Delay(Duration::from_millis(60));
            let slow = proxy.when(Matcher::any().first(50), When::Before, slow);
            slow.wait_for_hits(1, FAULT_DURATION).await?;
            tokio::time::sleep(FAULT_DURATION).await;
        }
        InjectedFault::KillBackend => {
            let victim: i32 = sqlx::query_scalar(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'brokkr-broker' ORDER BY random() LIMIT 1",
            )
            .fetch_one(&mut pair.connect_directly().await?)
            .await?;
            kill(Pid::from_raw(victim), Signal::SIGKILL)?;
        }
        InjectedFault::TerminateBackends => {
            let terminated: Vec<bool> = sqlx::query_scalar(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'brokkr-broker'",
            )
            .fetch_all(&mut pair.connect_directly().await?)
            .await?;
            ensure!(terminated.contains(&true), "no session was open");
        }
        InjectedFault::CrashServer => {
            pair.server()?.kill9().await?;
            pair.server()?.start_again().await?;
        }
        InjectedFault::ReadOnly => {
            let refused = writes_refused_while_read_only(pair).await;
            // In any case: the setting may be stored although the other fault interrupted this one.
            writable(pair).await?;
            refused?;
        }
        InjectedFault::OpenTransaction => {
            let mut direct = pair.connect_directly().await?;
            let mut open = direct.begin().await?;
            sqlx::query("SELECT pg_current_xact_id()").execute(&mut *open).await?;
            tokio::time::sleep(FAULT_DURATION).await;
            open.commit().await?;
        }
        InjectedFault::LockedStack => {
            let mut direct = pair.connect_directly().await?;
            let mut lock = direct.begin().await?;
            sqlx::query("SELECT FROM stacks WHERE name = 'web' FOR UPDATE").execute(&mut *lock).await?;
            let waited = wait_for_a_blocked_session(pair, &mut lock).await;
            tokio::time::sleep(FAULT_DURATION).await;
            lock.rollback().await?;
            waited?;
        }
    }
    Ok(())
}

/// Makes the server read-only, and waits until a replica has refused a write.
async fn writes_refused_while_read_only(pair: &BrokerPair) -> Result<()> {
    let refused = || [0, 1].map(|replica| pair.unknown_outcomes_at(replica, "503"));
    let before = refused();
    let mut direct = pair.connect_directly().await?;
    sqlx::query("ALTER SYSTEM SET default_transaction_read_only = on").execute(&mut direct).await?;
    sqlx::query("SELECT pg_reload_conf()").execute(&mut direct).await?;
    eventually(FAULT_DURATION * 2, "a write to be refused", async || {
        refused().iter().zip(before).any(|(now, before)| *now > before)
    })
    .await
}

/// Waits until another session waits for a lock of this transaction.
async fn wait_for_a_blocked_session(pair: &BrokerPair, holder: &mut PgConnection) -> Result<()> {
    let holder: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(holder).await?;
    let mut direct = pair.connect_directly().await?;
    eventually(FAULT_DURATION * 2, "a submission to wait for the lock", async || {
        let blocked: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND $1 = ANY (pg_blocking_pids(pid))",
        )
        .bind(holder)
        .fetch_one(&mut direct)
        .await?;
        ensure!(blocked > 0, "no session waits");
        Ok(())
    })
    .await
}

/// Ends read-only mode, with retries.
async fn writable(pair: &BrokerPair) -> Result<()> {
    eventually(WAIT_TIMEOUT, "the database to be writable", async || {
        let mut direct = pair.connect_directly().await?;
        sqlx::query("SET default_transaction_read_only = off").execute(&mut direct).await?;
        sqlx::query("ALTER SYSTEM RESET default_transaction_read_only").execute(&mut direct).await?;
        sqlx::query("SELECT pg_reload_conf()").execute(&mut direct).await?;
        anyhow::Ok(())
    })
    .await
}
