//! The command line, run as a user with a separate home folder.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::names::unique;
use crate::process::{Launch, Output, Process, run};
use crate::programs::{kubectl_folder, program};
use crate::scratch::Scratch;

/// Long enough for `--wait` on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// The command line of one user, with separate settings.
#[derive(Debug)]
pub struct Cli {
    program: PathBuf,
    /// Contains kubectl, which some commands call.
    path: OsString,
    scratch: Scratch,
}

impl Cli {
    pub fn new() -> Result<Self> {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path = [kubectl_folder()?].into_iter().chain(std::env::split_paths(&inherited));
        let path = std::env::join_paths(path)?;
        Ok(Self { program: program("brokkr")?, path, scratch: Scratch::new("cli")? })
    }

    /// Returns the folder that replaces `~/.config` (`XDG_CONFIG_HOME`).
    pub fn config_home(&self) -> PathBuf {
        self.scratch.join("config")
    }

    /// Logs in to a broker.
    pub async fn login(&self, url: &str, token: &str, authority_file: &Path) -> Result<()> {
        let token_file = self.file("token", token)?;
        let arguments: [&OsStr; 6] = [
            "login".as_ref(),
            url.as_ref(),
            "--token-file".as_ref(),
            token_file.as_ref(),
            "--ca-file".as_ref(),
            authority_file.as_ref(),
        ];
        self.run(arguments).await?.ok()?;
        Ok(())
    }

    /// Runs `brokkr` with these arguments. This call succeeds even if the command fails.
    pub async fn run(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
        self.run_within(DEADLINE, arguments).await
    }

    pub async fn run_within(
        &self,
        deadline: Duration,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Output> {
        run(self.launch(arguments), deadline).await
    }

    /// Runs a command that does not end by itself; its output is in its log.
    pub fn watch(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Process> {
        Process::start(self.launch(arguments), self.scratch.path())
    }

    fn launch(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Launch {
        Launch::new("brokkr", &self.program)
            .args(arguments)
            .folder(self.scratch.path())
            .env("XDG_CONFIG_HOME", self.config_home())
            .env("HOME", self.scratch.path())
            .env("PATH", &self.path)
    }

    /// Writes a file for use in commands.
    pub fn file(&self, name: &str, contents: &str) -> Result<PathBuf> {
        self.scratch.write(&unique(name), contents)
    }
}
