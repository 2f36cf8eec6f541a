//! Child processes with captured logs, none of which outlives the test that started it.
//!
//! Two mechanisms ensure this: the process group is killed on drop (normal end and panic), and the kernel
//! sends the parent-death signal (when the test itself is killed). The next run removes the scratch folders
//! of a killed test.
//!
//! ```text
//! process/launch.rs    the description of a process: program, arguments, environment, user
//! process/spawner.rs   the thread that starts all children
//! process/run.rs       programs that end by themselves: their output and exit code
//! ```

mod launch;
mod run;
mod spawner;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::eventually::{Attempt, eventually};
pub use launch::{Launch, ShowLog};
pub use run::{Output, run};

/// How long a process may take to end after SIGTERM.
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// How much of a log is shown when a test fails.
const TAIL_LINES: usize = 60;

/// A child process that can be killed, paused and started again.
#[derive(Debug)]
pub struct Process {
    launch: Launch,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Starts the program; its output goes to `<name>.log` in `logs`.
    pub fn start(launch: Launch, logs: &Path) -> Result<Self> {
        let log = logs.join(format!("{}.log", launch.name));
        let process = Self { launch, log, child: Mutex::new(None) };
        process.start_again()?;
        Ok(process)
    }

    /// Starts the program once more after it ended or was killed: same arguments, same log.
    pub fn start_again(&self) -> Result<()> {
        if self.is_running() {
            bail!("{} is already running", self.launch.name);
        }
        let child = spawner::spawn(self.launch.command_logging_to(&self.log)?)
            .with_context(|| format!("cannot start {}", self.launch.name))?;
        *self.child() = Some(child);
        Ok(())
    }

    /// Changes the arguments of the next start.
    pub fn relaunch_with(&mut self, change: impl FnOnce(Launch) -> Launch) {
        self.launch = change(self.launch.clone());
    }

    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// Returns the description of the process, to start another one.
    pub fn launch(&self) -> Launch {
        self.launch.clone()
    }

    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    pub fn is_running(&self) -> bool {
        self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns its exit status if it has ended; none after [`Process::kill9`].
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child().as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Kills the process and its group at once, without a chance to clean up.
    pub fn kill9(&self) {
        let Some(mut child) = self.child().take() else { return };
        signal_group(&child, Signal::SIGKILL);
        let _ = child.wait();
    }

    /// Asks the process to end (SIGTERM) and waits until it has.
    pub async fn stop(&self) -> Result<ExitStatus> {
        self.stop_by(Signal::SIGTERM).await
    }

    /// Sends a signal and waits for the end.
    pub async fn stop_by(&self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        self.ended(STOP_DEADLINE).await
    }

    /// Waits until the process has ended, by itself or after a signal.
    pub async fn ended(&self, deadline: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.launch.name);
        let status = eventually(deadline, &what, async || self.exit_status()).await?;
        *self.child() = None;
        Ok(status)
    }

    /// Freezes the process (SIGSTOP), as if its machine had stalled.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes a paused process.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        match self.child().as_ref() {
            Some(child) => {
                signal_group(child, signal);
                Ok(())
            }
            None => bail!("{} is not running", self.launch.name),
        }
    }

    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns the whole log.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Returns the last lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log(), lines)
    }

    /// Waits until the log contains the text.
    pub async fn wait_for_log(&self, needle: &str, deadline: Duration) -> Result<()> {
        let what = format!("{:?} in the log of {}", needle, self.launch.name);
        eventually(deadline, &what, async || {
            if self.log().contains(needle) { Attempt::Done(()) } else { Attempt::NotYet(self.log_tail(20)) }
        })
        .await
    }

    /// Waits until `ready` returns true; fails early, with the log, if the process ends.
    pub async fn ready_when(&self, deadline: Duration, ready: impl AsyncFn() -> bool) -> Result<()> {
        let what = format!("{} to be ready", self.launch.name);
        let ended = eventually(deadline, &what, async || {
            if ready().await {
                return Attempt::Done(false);
            }
            if self.is_running() { Attempt::NotYet(self.log_tail(20)) } else { Attempt::Done(true) }
        })
        .await?;
        if ended {
            bail!(
                "{} ended while it was starting; its log:\n{}",
                self.launch.name,
                self.log_tail(TAIL_LINES)
            );
        }
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(signal) = self.launch.last_signal {
            self.end_gracefully(signal);
        }
        self.kill9();
        if self.launch.show_log == ShowLog::Always || std::thread::panicking() {
            eprintln!("──── last lines of {} ────\n{}", self.launch.name, self.log_tail(TAIL_LINES));
        }
    }
}

impl Process {
    /// Ends engines that would leave resources in the kernel if they were killed.
    #[expect(
        clippy::disallowed_methods,
        reason = "called while a panic unwinds, where nothing can be awaited"
    )]
    fn end_gracefully(&self, signal: Signal) {
        if self.signal(signal).is_err() {
            return;
        }
        for _ in 0..1_000 {
            if !self.is_running() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Signals the process group of a child. The id of the group is the child's process id.
fn signal_group(child: &Child, signal: Signal) {
    if let Ok(group) = i32::try_from(child.id()) {
        // The only possible error is that the group is empty.
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

/// Returns whether a process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    // `PID (NAME) STATE …`, where the name may contain anything.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
