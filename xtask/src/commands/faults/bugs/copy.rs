//! The copy of the workspace, and patches in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Applies a patch in a folder, with further options such as `--check`.
pub fn apply(folder: &Path, patch: &Path, options: &[&str]) -> Result<()> {
    let output = Command::new("git")
        .arg("apply")
        .args(options)
        .arg(patch)
        .current_dir(folder)
        // The copy is in no repository, even if a folder above it is one.
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder))
        .output()
        .context("cannot run git")?;
    ensure!(
        output.status.success(),
        "{} does not apply: {}",
        patch.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Makes the copy equal to the workspace. Files that are already equal keep their times, so that cargo builds only what
/// differs.
pub fn synchronise(from: &Path, to: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(from)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run git")?;
    ensure!(listed.status.success(), "cannot list the files of the workspace");
    let names = String::from_utf8(listed.stdout)?;
    let mut wanted = BTreeSet::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (source, copy) = (from.join(name), to.join(name));
        // A file that was deleted and not yet committed is still listed.
        let Ok(contents) = fs::read(&source) else { continue };
        if fs::read(&copy).ok().as_ref() != Some(&contents) {
            if let Some(folder) = copy.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(&source, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
            // On some systems, a copy has the original's time, which may be before the build with the patch.
            fs::File::options().append(true).open(&copy)?.set_modified(std::time::SystemTime::now())?;
        }
        wanted.insert(copy);
    }
    remove_others(to, &wanted)
}

fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_others(&entry.path(), wanted)?;
        } else if !wanted.contains(&entry.path()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::{apply, synchronise};

    #[test]
    fn a_copy_is_made_equal_again_after_a_patch() {
        let folder = std::env::temp_dir().join(format!("brokkr-bugs-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("src")).expect("a folder");
        fs::write(from.join("src/lib.rs"), "one\n").expect("a file");
        let init = Command::new("git").args(["init", "-q"]).current_dir(&from).status();
        assert!(init.expect("git").success());
        synchronise(&from, &to).expect("a copy");
        let patch = folder.join("bug.patch");
        let text = "A bug.\n\ndiff --git a/src/lib.rs b/src/lib.rs\n--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1 @@\n-one\n+two\n";
        fs::write(&patch, text).expect("a patch");
        apply(&to, &patch, &[]).expect("it applies");
        fs::write(to.join("new.rs"), "").expect("a file");
        assert_eq!(fs::read_to_string(to.join("src/lib.rs")).expect("a file"), "two\n");
        apply(&to, &patch, &[]).expect_err("it does not apply twice");

        synchronise(&from, &to).expect("a copy");
        assert_eq!(fs::read_to_string(to.join("src/lib.rs")).expect("a file"), "one\n");
        assert!(!to.join("new.rs").exists());
        fs::remove_dir_all(&folder).expect("gone");
    }
}
