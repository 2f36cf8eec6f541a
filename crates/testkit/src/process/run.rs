//! Programs that end by themselves: their output and exit code.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use super::launch::Launch;
use super::spawner;

/// The output and the exit code of a program.
#[derive(Clone, Debug)]
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    pub stdout: String,
    pub stderr: String,
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
}

impl Output {
    pub fn success(&self) -> bool {
        self.code == 0
    }

    /// Returns itself if the program succeeded, else an error with its output.
    pub fn ok(self) -> Result<Self> {
        if self.success() {
            return Ok(self);
        }
        bail!("`{}` ended with {}\n{}\n{}", self.command, self.code, self.stdout.trim(), self.stderr.trim())
    }

    /// Parses standard output as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("`{}` did not print the expected JSON:\n{}", self.command, self.stdout))
    }
}

/// Runs a program to its end. It is killed when the deadline passes or the future is dropped.
pub async fn run(launch: Launch, deadline: Duration) -> Result<Output> {
    let command_line = launch.to_string();
    let mut command = launch.command();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = spawner::spawn(command).with_context(|| format!("cannot start `{command_line}`"))?;
    let mut guard = KillGuard { group: i32::try_from(child.id()).ok() };
    // Reading the pipes blocks; the guard kills the process if the future is dropped.
    let mut waiting = tokio::task::spawn_blocking(move || child.wait_with_output());
    match tokio::time::timeout(deadline, &mut waiting).await {
        Ok(ended) => {
            guard.group = None;
            let output = ended?.with_context(|| format!("cannot read the output of `{command_line}`"))?;
            Ok(Output {
                command: command_line,
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
                code: output.status.code().unwrap_or(-1),
            })
        }
        Err(_) => {
            drop(guard);
            // The pipes end with the processes of the group; a process that left the group may keep them open.
            let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await;
            let output = ended.ok().and_then(Result::ok).and_then(Result::ok);
            let printed = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
            let printed = String::from_utf8_lossy(&printed);
            bail!("`{command_line}` did not end within {deadline:?}; it printed:\n{}", printed.trim())
        }
    }
}

/// Kills the process group on drop unless it was disarmed.
struct KillGuard {
    group: Option<i32>,
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}
