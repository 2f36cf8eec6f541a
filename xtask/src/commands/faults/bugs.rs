//! Deliberate bugs: a test harness that never failed proves nothing.
//!
//! Each bug is a patch file below `crates/e2e/bugs`. The command copies the workspace, applies one patch to the copy, builds
//! it with a target folder of its own, and runs the tests that the patch names. The bug is found if every one of them fails
//! with the message that the patch names. A patch that does not apply or does not compile, and a test that does not exist,
//! are errors.
//!
//! The header of a patch, before its first `diff --git` line, describes the bug and names the tests, each with parts of the
//! message of its failure:
//!
//! ```text
//! A delete does not carry the UID of the object as a precondition.
//!
//! Found-by: row_27_a_delayed_delete_does_not_hit_an_object_that_a_user_made_meanwhile
//! Message: the uid is the precondition
//! ```
//!
//! A test with many attempts prints a line `violation: …` for each that succeeded. If the header names some of them
//! (`Violation: …`, from the beginning of the line), the bug is found only if they are among those that are printed.
//!
//! ```text
//! bugs/copy.rs      the copy of the workspace, and patches in it
//! bugs/findings.rs  whether the tests have found the bug
//! ```

mod copy;
mod findings;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::commands::{bench, engines};
use crate::runner::{Tests, Workspace, root};
use copy::{apply, synchronise};
use findings::{Finder, Findings};

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
    found_by: Vec<Finder>,
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
            eprintln!("══ {}: NOT FOUND\n   {}", bug.name, missed.join("\n   "));
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

/// Puts the bug into the copy, and returns why its tests have not found it; nothing if they have.
fn missed(copy: &Workspace, bug: &Bug) -> Result<Vec<String>> {
    synchronise(&root(), copy.root())?;
    apply(copy.root(), &bug.patch, &[])?;
    copy.build(&[&["--bins"], bug.selection].concat()).context("it does not compile")?;
    let filters: Vec<&str> = bug.found_by.iter().map(|finder| finder.test.as_str()).collect();
    let mut findings = Findings::default();
    copy.run_tests(&Tests { selection: bug.selection, filters: &filters }, &[], |line| {
        eprintln!("{line}");
        findings.add_line(line);
    })?;
    let mut missed = Vec::new();
    for finder in &bug.found_by {
        missed.extend(findings.missed_by(finder)?);
    }
    let missing = findings.missing(&bug.violations).into_iter();
    missed.extend(missing.map(|violation| format!("no violation \"{violation}\"")));
    Ok(missed)
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
        let (found_by, violations) = (finders(&text), named(&text, "Violation:"));
        ensure!(!found_by.is_empty(), "{} names no test: `Found-by: TEST`", patch.display());
        let silent = found_by.iter().find(|finder| finder.messages.is_empty() && violations.is_empty());
        if let Some(finder) = silent {
            bail!("{} does not say how {} fails: `Message: TEXT`", patch.display(), finder.test);
        }
        let stem = patch.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self { name: format!("{part}/{stem}"), patch, selection, found_by, violations })
    }
}

fn header(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().take_while(|line| !line.starts_with("diff --git"))
}

/// Returns what the header of a patch names in lines with this key.
fn named(patch: &str, key: &str) -> Vec<String> {
    header(patch).filter_map(|line| line.strip_prefix(key)).map(|name| name.trim().to_owned()).collect()
}

/// Returns the tests that the header names, each with the messages that follow it.
fn finders(patch: &str) -> Vec<Finder> {
    let mut finders: Vec<Finder> = Vec::new();
    for line in header(patch) {
        if let Some(test) = line.strip_prefix("Found-by:") {
            finders.push(Finder { test: test.trim().to_owned(), messages: Vec::new() });
        } else if let (Some(message), Some(finder)) = (line.strip_prefix("Message:"), finders.last_mut()) {
            finder.messages.push(message.trim().to_owned());
        }
    }
    finders
}

#[cfg(test)]
mod tests {
    use super::{Finder, all, apply, chosen, finders, named};
    use crate::commands::contract::tests::find;
    use crate::runner::root;

    /// A patch that no longer applies proves nothing: adapt it together with the source that it changes.
    #[test]
    fn every_patch_applies_and_names_tests_that_exist() {
        let root = root();
        let tests = find(&root.join("crates")).expect("the tests");
        for bug in all(&root).expect("the bugs") {
            apply(&root, &bug.patch, &["--check"]).expect("a patch that applies");
            for Finder { test: name, .. } in &bug.found_by {
                assert!(
                    tests.iter().any(|test| test.name() == name),
                    "{}: there is no test {name}",
                    bug.name
                );
            }
        }
    }

    #[test]
    fn the_header_of_a_patch_names_its_tests_with_their_messages_and_violations() {
        let patch = "A bug.\n\nFound-by: row_01_one\nMessage: S1: lost\nMessage: twice\nFound-by:  row_02_two \n\
                     Violation: GET /x × y: read\ndiff --git a/x b/x\n+Found-by: three\n+Message: four\n";
        let finder = |test: &str, messages: &[&str]| Finder {
            test: test.into(),
            messages: messages.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(finders(patch), [finder("row_01_one", &["S1: lost", "twice"]), finder("row_02_two", &[])]);
        assert_eq!(named(patch, "Violation:"), ["GET /x × y: read"]);
    }

    #[test]
    fn every_missing_check_of_the_broker_is_found_by_its_violations() {
        let bugs = chosen(all(&root()).expect("the bugs"), &["hostile".to_owned()]).expect("a folder");
        assert!(bugs.len() >= 15, "{}", bugs.len());
        assert!(bugs.iter().all(|bug| !bug.violations.is_empty()));
    }
}
