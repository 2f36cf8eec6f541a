//! Deliberate bugs: a test harness that never failed proves nothing.
//!
//! Each bug is a patch file below `crates/e2e/bugs`. The command copies the workspace, applies one patch to the copy, builds
//! it with a target folder of its own, and runs the tests that the patch names. The bug is found if every one of them
//! fails. A patch that does not apply or does not compile, and a test that does not exist, are errors.
//!
//! The header of a patch, before its first `diff --git` line, describes the bug and names the tests:
//!
//! ```text
//! A delete does not carry the UID of the object as a precondition.
//!
//! Found-by: row_27_a_delayed_delete_does_not_hit_an_object_that_a_user_made_meanwhile
//! ```
//!
//! A test with many attempts prints a line `violation: …` for each that succeeded. If the header names some of them
//! (`Violation: …`, from the beginning of the line), the bug is found only if they are among those that are printed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::tally::Tally;
use crate::commands::{bench, engines};
use crate::runner::{Tests, Workspace, root};

const FOLDER: &str = "crates/e2e/bugs";
/// The folders of bugs, and the test targets that have to find them.
const PARTS: [(&str, &[&str]); 3] = [("agent", END_TO_END), ("broker", END_TO_END), ("hostile", BROKER)];
const END_TO_END: &[&str] = &["--workspace", "--test", "e2e", "--test", "faults", "--test", "broker_faults"];
const BROKER: &[&str] = &["-p", "brokkr-broker", "-p", "brokkr-testkit", "--test", "broker"];

/// Apply deliberate bugs to a copy of the workspace, and require that tests find them.
#[derive(clap::Args)]
pub struct Args {
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
    /// Run only these bugs, such as `agent/delete-without-uid`, or those of a folder, such as `hostile`.
    bugs: Vec<String>,
}

/// A deliberate bug.
struct Bug {
    /// `agent/delete-without-uid`
    name: String,
    patch: PathBuf,
    /// The test targets with these tests.
    selection: &'static [&'static str],
    /// Names of test functions that have to fail.
    found_by: Vec<String>,
    /// How the lines begin that the tests have to print.
    violations: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let bugs = chosen(all(&root())?, &args.bugs)?;
    engines::ensure()?;
    let home = bench::cache()?.join("bugs");
    let copy = Workspace::at(home.join("workspace"), home.join("target"));
    let mut survived = Vec::new();
    for bug in &bugs {
        eprintln!("══ {}", bug.name);
        let missed = missed(&copy, bug).with_context(|| format!("the bug {}", bug.name))?;
        if missed.is_empty() {
            eprintln!("══ {}: found", bug.name);
        } else {
            eprintln!("══ {}: NOT FOUND by {}", bug.name, missed.join(", "));
            survived.push(bug.name.as_str());
        }
    }
    println!("{}", json!({"bugs": bugs.len(), "found": bugs.len() - survived.len(), "survived": survived}));
    if !args.json && survived.is_empty() {
        println!("every bug was found");
    }
    ensure!(survived.is_empty(), "not found: {}", survived.join(", "));
    Ok(())
}

fn chosen(bugs: Vec<Bug>, names: &[String]) -> Result<Vec<Bug>> {
    let is_named = |bug: &Bug, name: &str| bug.name == name || bug.name.split('/').next() == Some(name);
    if let Some(unknown) = names.iter().find(|name| !bugs.iter().any(|bug| is_named(bug, name))) {
        let known: Vec<&str> = bugs.iter().map(|bug| bug.name.as_str()).collect();
        bail!("there is no bug {unknown}; there are {}", known.join(", "));
    }
    let is_chosen = |bug: &Bug| names.is_empty() || names.iter().any(|name| is_named(bug, name));
    Ok(bugs.into_iter().filter(is_chosen).collect())
}

/// Puts the bug into the copy, and returns those of its tests that pass nevertheless, and the violations that they do not
/// print.
fn missed(copy: &Workspace, bug: &Bug) -> Result<Vec<String>> {
    synchronise(&root(), copy.root())?;
    apply(copy.root(), &bug.patch, &[])?;
    copy.build(&[&["--bins"], bug.selection].concat()).context("it does not compile")?;
    let filters: Vec<&str> = bug.found_by.iter().map(String::as_str).collect();
    let (mut tally, mut missed) = (Tally::default(), bug.violations.clone());
    copy.run_tests(&Tests { selection: bug.selection, filters: &filters }, &[], |line| {
        eprintln!("{line}");
        tally.add_line(line);
        if let Some(printed) = line.trim_start().strip_prefix("violation: ") {
            missed.retain(|violation| !printed.starts_with(violation));
        }
    })?;
    for test in &bug.found_by {
        match tally.passed(test) {
            Some(true) => missed.push(test.clone()),
            Some(false) => {}
            None => bail!("the test {test} did not run"),
        }
    }
    Ok(missed)
}

/// Applies a patch in a folder, with further options such as `--check`.
fn apply(folder: &Path, patch: &Path, options: &[&str]) -> Result<()> {
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
fn synchronise(from: &Path, to: &Path) -> Result<()> {
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

/// Reads the bugs of the workspace, ordered by name.
fn all(root: &Path) -> Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for (part, selection) in PARTS {
        let folder = root.join(FOLDER).join(part);
        // A part without bugs has no folder.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let patch = entry?.path();
            if patch.extension().is_some_and(|extension| extension == "patch") {
                bugs.push(Bug::read(part, selection, patch)?);
            }
        }
    }
    bugs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(bugs)
}

impl Bug {
    fn read(part: &str, selection: &'static [&'static str], patch: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&patch).with_context(|| format!("cannot read {}", patch.display()))?;
        let (found_by, violations) = (named(&text, "Found-by:"), named(&text, "Violation:"));
        ensure!(!found_by.is_empty(), "{} names no test: `Found-by: TEST`", patch.display());
        let stem = patch.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self { name: format!("{part}/{stem}"), patch, selection, found_by, violations })
    }
}

/// Returns what the header of a patch names in lines with this key.
fn named(patch: &str, key: &str) -> Vec<String> {
    let header = patch.lines().take_while(|line| !line.starts_with("diff --git"));
    header.filter_map(|line| line.strip_prefix(key)).map(|name| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::{all, apply, chosen, named, synchronise};
    use crate::commands::contract::tests::find;
    use crate::runner::root;

    /// A patch that no longer applies proves nothing: adapt it together with the source that it changes.
    #[test]
    fn every_patch_applies_and_names_tests_that_exist() {
        let root = root();
        let tests = find(&root.join("crates")).expect("the tests");
        for bug in all(&root).expect("the bugs") {
            apply(&root, &bug.patch, &["--check"]).expect("a patch that applies");
            for name in &bug.found_by {
                assert!(
                    tests.iter().any(|test| test.name() == name),
                    "{}: there is no test {name}",
                    bug.name
                );
            }
        }
    }

    #[test]
    fn the_header_of_a_patch_names_its_tests_and_violations() {
        let patch = "A bug.\n\nFound-by: row_01_one\nFound-by:  row_02_two \nViolation: GET /x × y: read\n\
                     diff --git a/x b/x\n+Found-by: three\n";
        assert_eq!(named(patch, "Found-by:"), ["row_01_one", "row_02_two"]);
        assert_eq!(named(patch, "Violation:"), ["GET /x × y: read"]);
    }

    #[test]
    fn every_missing_check_of_the_broker_is_found_by_its_violations() {
        let bugs = chosen(all(&root()).expect("the bugs"), &["hostile".to_owned()]).expect("a folder");
        assert!(bugs.len() >= 15, "{}", bugs.len());
        assert!(bugs.iter().all(|bug| !bug.violations.is_empty()));
    }

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
