//! A user at a terminal: types commands, and counts them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use brokkr_testkit::cluster::kubeconfig;
use brokkr_testkit::process::run;
use brokkr_testkit::{Cluster, Launch, Output, Process, Scratch, programs};
use serde::Serialize;

/// The longest time that a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);

/// The result of one journey.
#[derive(Debug, Serialize)]
pub struct Journey {
    pub journey: &'static str,
    /// The number of commands that it may take.
    pub target: usize,
    pub commands: usize,
    pub seconds: f64,
}

/// A user with a home folder, the programs on the path, and a kubeconfig.
pub struct Typist {
    scratch: Scratch,
    path: String,
    quiet: bool,
    typed: usize,
    began: Instant,
    journeys: Vec<Journey>,
}

impl Typist {
    pub fn new(clusters: &[(String, Cluster)], quiet: bool) -> Result<Self> {
        let scratch = Scratch::new("journeys")?;
        let contexts: Vec<_> = clusters.iter().map(|(name, cluster)| cluster.admin_context(name)).collect();
        kubeconfig::write(&scratch.join("kubeconfig"), &contexts)?;
        let (own, kubectl) = (programs::folder()?, programs::kubectl_folder()?);
        let path = format!("{}:{}:/usr/bin:/bin", own.display(), kubectl.display());
        Ok(Self { scratch, path, quiet, typed: 0, began: Instant::now(), journeys: Vec::new() })
    }

    /// Writes a file into the user's current folder.
    pub fn put(&self, file: &str, contents: &str) -> Result<PathBuf> {
        let path = self.scratch.join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, contents)?;
        Ok(path)
    }

    pub fn begin(&mut self) {
        self.typed = 0;
        self.began = Instant::now();
    }

    /// Ends the journey and counts the commands since it began.
    pub fn end(&mut self, journey: &'static str, target: usize) {
        let seconds = (self.began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        self.journeys.push(Journey { journey, target, commands: self.typed, seconds });
    }

    pub fn journeys(self) -> Vec<Journey> {
        self.journeys
    }

    /// Types a command and returns its output.
    pub async fn types(&mut self, command: &str) -> Result<Output> {
        self.typed += 1;
        self.say(command);
        self.happens(command).await
    }

    /// Types a command that must succeed.
    pub async fn types_well(&mut self, command: &str) -> Result<Output> {
        let output = self.types(command).await?;
        ensure!(output.success(), "`{command}` failed: {output:?}");
        Ok(output)
    }

    /// Types a command that runs until it is stopped.
    pub fn starts(&mut self, command: &str) -> Result<Process> {
        self.typed += 1;
        self.say(command);
        Process::start(self.shell(&format!("exec {command}")), self.scratch.path())
    }

    /// Runs a command that does not count, because the user does not type it.
    pub async fn happens(&self, command: &str) -> Result<Output> {
        let output = run(self.shell(command), COMMAND_TIMEOUT).await?;
        if !self.quiet {
            eprint!("{}{}", output.stdout, output.stderr);
        }
        Ok(output)
    }

    fn say(&self, command: &str) {
        if !self.quiet {
            eprintln!("\n$ {command}");
        }
    }

    fn shell(&self, command: &str) -> Launch {
        Launch::new("bash", "/bin/bash")
            .args(["-c", command])
            .folder(self.scratch.path())
            .env("PATH", &self.path)
            .env("HOME", self.scratch.path())
            .env("XDG_CONFIG_HOME", self.scratch.join("config"))
            .env("KUBECONFIG", self.scratch.join("kubeconfig"))
    }
}
