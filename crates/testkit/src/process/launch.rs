//! The description of a child process: program, arguments, environment, user.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

/// The PATH in a container.
const CONTAINER_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// When the end of a process's log is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowLog {
    /// Only when the test panics.
    OnPanic,
    /// At the end of every test, because a test can also fail by returning an error. The test runner hides
    /// the output of tests that pass.
    Always,
}

/// The description of a child process; cheap to clone, so that it can be started again.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    bare: bool,
    folder: Option<PathBuf>,
    user: Option<(u32, u32)>,
    pub(crate) show_log: ShowLog,
    pub(crate) last_signal: Option<Signal>,
    death_signal: Signal,
}

impl Launch {
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            bare: false,
            folder: None,
            user: None,
            show_log: ShowLog::OnPanic,
            last_signal: None,
            death_signal: Signal::SIGKILL,
        }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds `--flag=value`, for engines that accept only this form.
    pub fn flag(self, flag: &str, value: impl AsRef<OsStr>) -> Self {
        let mut argument = OsString::from(format!("--{flag}="));
        argument.push(value.as_ref());
        self.arg(argument)
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn envs(self, variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> Self {
        variables.into_iter().fold(self, |launch, (name, value)| launch.env(name, value))
    }

    /// Clears the inherited environment, as in a container: only a fixed PATH and [`Launch::env`] apply.
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Sets the working folder.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Runs it as this user and group.
    pub fn user(mut self, user: Option<(u32, u32)>) -> Self {
        self.user = user;
        self
    }

    pub fn show_log(mut self, show_log: ShowLog) -> Self {
        self.show_log = show_log;
        self
    }

    /// Sets the signal that is sent before it is killed on drop.
    pub fn last_signal(mut self, signal: Signal) -> Self {
        self.last_signal = Some(signal);
        self
    }

    /// Sets the signal that the kernel sends when the test dies, for a process that has to clean up then.
    pub fn ends_with_parent_by(mut self, signal: Signal) -> Self {
        self.death_signal = signal;
        self
    }

    /// `setpriv` sets the parent-death signal (and the user) and then becomes the program: same process id.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", self.death_signal.as_str().trim_start_matches("SIG")]);
        if let Some((user, group)) = self.user {
            command.args(["--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups"]);
        }
        command.arg("--").arg(&self.program).args(&self.arguments);
        if self.bare {
            command.env_clear().env("PATH", CONTAINER_PATH);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    pub(super) fn command_logging_to(&self, log: &Path) -> Result<Command> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let mut command = self.command();
        command.stdout(file.try_clone()?).stderr(file);
        Ok(command)
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        for argument in &self.arguments {
            write!(f, " {}", argument.to_string_lossy())?;
        }
        Ok(())
    }
}
