//! No process outlives the test that started it: not after an error, a panic or a kill.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use brokkr_testkit::process::{is_alive, run};
use brokkr_testkit::{Attempt, Launch, Postgres, Process, Scratch, eventually};

const SOON: Duration = Duration::from_secs(10);
/// Set for the process in which [`be_the_owner`] does its part.
const OWNER: &str = "TESTKIT_BE_THE_OWNER";

fn sleeper() -> Launch {
    Launch::new("sleeper", "sleep").arg("1000")
}

#[tokio::test]
async fn a_process_can_be_killed_paused_and_started_again() -> Result<()> {
    let scratch = Scratch::new("process")?;
    let script = "echo started; trap 'echo asked; exit 7' TERM; while :; do sleep 0.05; done";
    let launch = Launch::new("shell", "bash").args(["-c", script]);
    let process = Process::start(launch, scratch.path())?;
    process.wait_for_log("started", SOON).await?;
    process.kill9();
    assert!(!process.is_running());
    process.start_again()?;
    process.pause()?;
    process.resume()?;
    eventually(SOON, "the second start", async || process.log().matches("started").count() == 2).await?;
    let status = process.stop().await?;
    assert_eq!(status.code(), Some(7), "{}", process.log_tail(10));
    assert!(process.log().contains("asked"));
    Ok(())
}

#[tokio::test]
async fn a_panic_ends_the_process_and_its_children() -> Result<()> {
    let scratch = Scratch::new("process")?;
    let launch = Launch::new("parent", "bash").args(["-c", "sleep 1000 & echo child $!; wait"]);
    let process = Process::start(launch, scratch.path())?;
    process.wait_for_log("child", SOON).await?;
    let child: u32 = process.log().trim().trim_start_matches("child ").parse()?;
    let parent = process.pid().context("it runs")?;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _owned = process;
        panic!("as a failing test does");
    }));
    assert!(panicked.is_err());
    eventually(SOON, "both to be gone", async || !is_alive(parent) && !is_alive(child)).await?;
    Ok(())
}

#[tokio::test]
async fn a_program_that_does_not_end_is_killed() -> Result<()> {
    let refused = run(sleeper(), Duration::from_millis(100)).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("did not end")));
    Ok(())
}

#[tokio::test]
async fn a_program_that_does_not_end_shows_what_it_printed() {
    let launch = Launch::new("shell", "bash").args(["-c", "echo one of two; exec sleep 1000"]);
    let refused = run(launch, Duration::from_secs(5)).await;
    let message = format!("{:#}", refused.expect_err("it does not end"));
    assert!(message.contains("one of two"), "{message}");
}

#[tokio::test]
async fn a_timeout_shows_what_was_seen_last() {
    let waited = eventually::<(), _>(Duration::from_millis(60), "the moon", async || {
        Attempt::NotYet("only clouds".to_owned())
    });
    let message = waited.await.unwrap_err().to_string();
    assert!(message.contains("the moon") && message.contains("only clouds"), "{message}");
}

/// Not a test by itself: the test below starts this executable once more with the variable set, and kills it.
#[tokio::test]
async fn be_the_owner() -> Result<()> {
    if std::env::var_os(OWNER).is_none() {
        return Ok(());
    }
    let scratch = Scratch::new("owner")?;
    let process = Process::start(sleeper(), scratch.path())?;
    let postgres = Postgres::start().await?;
    let server = postgres.server().and_then(|server| server.process().pid()).context("it runs")?;
    println!("\nowns {} {server}", process.pid().context("it runs")?);
    std::future::pending().await
}

#[tokio::test]
async fn a_killed_owner_leaves_nothing_running() -> Result<()> {
    let mut owner = Command::new(std::env::current_exe()?)
        .args(["--exact", "be_the_owner", "--nocapture"])
        .env(OWNER, "yes")
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let lines = BufReader::new(owner.stdout.take().context("it is piped")?).lines();
    let owned = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("owns ").map(str::to_owned));
    let owned: Vec<u32> =
        owned.context("the owner said nothing")?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    assert!(owned.iter().all(|&pid| is_alive(pid)));
    owner.kill()?;
    owner.wait()?;
    eventually(SOON, "what it owned to be gone", async || !owned.iter().any(|&pid| is_alive(pid))).await?;
    Ok(())
}
