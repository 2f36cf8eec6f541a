//! The Git commit that manifests come from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::Content;
use crate::program;

/// Set by GitHub Actions, GitLab, Buildkite, CircleCI, Bitbucket, Azure Pipelines and Jenkins, in this order.
const CI_VARIABLES: [&str; 7] = [
    "GITHUB_SHA",
    "CI_COMMIT_SHA",
    "BUILDKITE_COMMIT",
    "CIRCLE_SHA1",
    "BITBUCKET_COMMIT",
    "BUILD_SOURCEVERSION",
    "GIT_COMMIT",
];
/// A work tree on a slow file system must not hold up a deployment.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the commit from the CI environment, or else of the work tree that contains the manifests. Returns none if the
/// manifests have uncommitted changes: then no commit describes them.
pub async fn commit(content: &Content) -> Option<String> {
    let variables = CI_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    if let Some(commit) = from_environment(variables) {
        return Some(commit);
    }
    let paths = paths(content);
    let folder = folder_of(paths.first()?)?;
    tokio::time::timeout(TIMEOUT, from_work_tree(&folder, &paths)).await.ok().flatten()
}

fn from_environment(values: impl Iterator<Item = String>) -> Option<String> {
    let mut values = values.map(|value| value.trim().to_owned());
    values.find(|value| value.len() >= 7 && value.len() <= 64 && value.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Returns the files and folders on this machine that the manifests are read from.
fn paths(content: &Content) -> Vec<PathBuf> {
    let files = content.files.iter().filter(|path| path.as_os_str() != "-").cloned();
    let chart = content.helm.iter().map(PathBuf::from).filter(|path| path.exists());
    files.chain(content.kustomize.clone()).chain(chart).filter_map(|path| path.canonicalize().ok()).collect()
}

fn folder_of(path: &Path) -> Option<PathBuf> {
    if path.is_dir() { Some(path.to_owned()) } else { path.parent().map(ToOwned::to_owned) }
}

async fn from_work_tree(folder: &Path, paths: &[PathBuf]) -> Option<String> {
    let changed = git(folder, ["status", "--porcelain", "--"], paths).await?;
    if !changed.is_empty() {
        return None;
    }
    // Git shows no change of a file that it ignores, although no commit contains the file.
    if git(folder, ["ls-files", "--"], paths).await?.is_empty() {
        return None;
    }
    git(folder, ["rev-parse", "HEAD"], &[]).await
}

async fn git<const N: usize>(folder: &Path, arguments: [&str; N], paths: &[PathBuf]) -> Option<String> {
    let arguments = ["-C".into(), folder.into()]
        .into_iter()
        .chain(arguments.into_iter().map(Into::into))
        .chain(paths.iter().map(Into::into));
    let ran = program::run("git", arguments, None).await.ok()?;
    Some(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_of_the_environment_is_hexadecimal() {
        let values = ["", "main", "0123456789abcdef"].map(ToOwned::to_owned);
        assert_eq!(from_environment(values.into_iter()).as_deref(), Some("0123456789abcdef"));
        assert_eq!(from_environment(["refs/heads/main".to_owned()].into_iter()), None);
    }

    #[tokio::test]
    async fn the_commit_of_a_clean_work_tree_is_found() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().canonicalize().unwrap();
        let file = folder.join("web.yaml");
        std::fs::write(&file, "a: 1\n").unwrap();
        let run = async |arguments: &[&str]| {
            let identity = ["-c", "user.name=ana", "-c", "user.email=ana@brokkr.example"];
            let arguments = ["-C".into(), folder.clone().into_os_string()]
                .into_iter()
                .chain(identity.iter().chain(arguments).map(Into::into));
            program::run("git", arguments, None).await
        };
        if run(&["init", "-q"]).await.is_err() {
            eprintln!("git is not installed: nothing was tested");
            return;
        }
        let paths = [file.clone()];
        assert_eq!(from_work_tree(&folder, &paths).await, None, "not committed");
        run(&["add", "."]).await.unwrap();
        run(&["commit", "-q", "-m", "one"]).await.unwrap();
        assert_eq!(from_work_tree(&folder, &paths).await.map(|commit| commit.len()), Some(40));
        std::fs::write(&file, "a: 2\n").unwrap();
        assert_eq!(from_work_tree(&folder, &paths).await, None, "changed since");
    }
}
