//! Runs the user's own programs: kubectl, kustomize, helm and git, with their configuration, logins and plugins.

use std::ffi::OsString;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The output of a program that succeeded.
#[derive(Debug)]
pub struct ProgramOutput {
    pub stdout: Vec<u8>,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{0} is not installed")]
    Missing(&'static str),
    #[error("failed to start {0}: {1}")]
    Start(&'static str, std::io::Error),
    /// With its error output.
    #[error("{}", .0.trim())]
    Failed(String),
}

pub async fn run(
    program: &'static str,
    arguments: impl IntoIterator<Item = OsString>,
    stdin: Option<&str>,
) -> Result<ProgramOutput, ProgramError> {
    let mut command = Command::new(program);
    // Plugins are third-party programs and must not see the token.
    command
        .args(arguments)
        .env_remove("BROKKR_TOKEN")
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ProgramError::Missing(program),
        _ => ProgramError::Start(program, error),
    })?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        // A program that exits before it has read everything reports its own error.
        pipe.write_all(text.as_bytes()).await.ok();
    }
    let output = child.wait_with_output().await.map_err(|error| ProgramError::Start(program, error))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(ProgramOutput { stdout: output.stdout, stderr })
    } else {
        Err(ProgramError::Failed(stderr))
    }
}
