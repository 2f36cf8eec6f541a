//! `with-engines COMMAND…` starts one PostgreSQL and one cluster with workloads, writes their addresses to a
//! file, runs the command with the path of the file in its environment, and ends both when the command ends.
//! With `BROKKR_REAL_NODES` in its environment, it also starts a cluster with a real node.
//! `cargo xtask test` and `cargo xtask e2e` run the test runner through it.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Instant;

use anyhow::{Context, Result};
use brokkr_testkit::shared::{Directory, VARIABLE};
use brokkr_testkit::{Cluster, Postgres, Scratch, nodes};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let started = Instant::now();
    let (postgres, cluster, real) =
        tokio::try_join!(Postgres::start(), Cluster::with_workloads(), real_cluster())?;
    eprintln!("engines are up after {:.1} s", started.elapsed().as_secs_f32());

    let scratch = Scratch::new("engines")?;
    let file = scratch.join("engines.json");
    let directory = Directory {
        postgres: postgres.facts().clone(),
        cluster: cluster.facts().clone(),
        real_cluster: real.as_ref().map(|cluster| cluster.facts().clone()),
    };
    directory.write(&file)?;
    let status = run(&command, &file).await?;

    if !status.success() {
        let server = postgres.server().map(|server| server.process());
        let real = real.iter().flat_map(Cluster::processes);
        let all = cluster.processes().into_iter().chain(server).chain(real);
        for process in all.filter(|process| !process.is_running()) {
            eprintln!("{} has ended:\n{}", process.name(), process.log_tail(60));
        }
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

async fn real_cluster() -> Result<Option<Cluster>> {
    match nodes::is_required() && !nodes::skipped()? {
        true => Ok(Some(Cluster::with_real_nodes(1).await?)),
        false => Ok(None),
    }
}

/// Runs the command to its end. Ctrl-C reaches it directly, because it is in the same process group; this process only
/// has to outlive it. On SIGTERM, this process kills the command.
async fn run(command: &[String], directory: &std::path::Path) -> Result<ExitStatus> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut child = tokio::process::Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "--"])
        .args(command)
        .env(VARIABLE, directory)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(status?),
            _ = interrupted.recv() => {}
            _ = terminated.recv() => child.kill().await?,
        }
    }
}
