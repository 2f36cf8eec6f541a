//! The user's own programs: kubectl, kustomize and helm know their clusters, logins, plugins and repositories.

use std::ffi::OsString;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// What a program that did its work printed.
#[derive(Debug)]
pub struct Ran {
    pub stdout: Vec<u8>,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{0} is not here")]
    Missing(&'static str),
    #[error("{0} cannot be started: {1}")]
    Unusable(&'static str, std::io::Error),
    /// What it said.
    #[error("{}", .0.trim())]
    Failed(String),
}

pub async fn run(
    program: &'static str,
    arguments: impl IntoIterator<Item = OsString>,
    stdin: Option<&str>,
) -> Result<Ran, Refused> {
    let mut command = Command::new(program);
    // Their plugins are other people's programs: the broker's token is none of their business.
    command
        .args(arguments)
        .env_remove("BROKKR_TOKEN")
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Refused::Missing(program),
        _ => Refused::Unusable(program, error),
    })?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        // One that ends before it has read everything says itself why.
        pipe.write_all(text.as_bytes()).await.ok();
    }
    let output = child.wait_with_output().await.map_err(|error| Refused::Unusable(program, error))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(Ran { stdout: output.stdout, stderr })
    } else {
        Err(Refused::Failed(stderr))
    }
}
