//! Types the commands of the documentation: every page with `console` blocks, in its own shell, on one fleet of
//! `cargo xtask dev` for all of them. The output of each block is compared with the page.
//!
//! ```text
//! pages/page.rs      parses a page: its setting, its commands and their expected output
//! pages/shell.rs     types the commands of a page into one bash, and reads the output of each
//! pages/compare.rs   compares outputs without times, ids and races
//! pages/record.rs    writes the output into the page
//! ```
//!
//! `BROKKR_PAGES=WORD` types only pages with that text in their path; `INSTA_UPDATE=always` writes the output into them.

mod compare;
pub mod page;
mod record;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_testkit::process::run;
use brokkr_testkit::programs::program;
use brokkr_testkit::{Launch, Process, Scratch, eventually};

use page::{Page, Setting};

/// Two clusters with controllers have to start.
const STARTING: Duration = Duration::from_secs(120);
const TYPING: Duration = Duration::from_secs(120);
/// The number of sequence ids to use up first, so that no count on a page is mistaken for an id.
const IDS_TO_USE_UP: usize = 100;

pub fn root() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?)
}

/// Returns the README and every page below `docs/`, sorted by path.
fn pages(root: &Path) -> Result<Vec<Page>> {
    let (mut paths, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| Page::read(root, path)).collect()
}

#[test]
fn every_block_of_the_documentation_is_typed_or_says_why_not() -> Result<()> {
    let mut wrong = Vec::new();
    let (mut typed, mut commands_not_typed) = (0, 0);
    for page in pages(&root()?)? {
        for block in &page.blocks {
            let place = format!("{}:{}", page.name, block.line);
            match (block.is_console(), &block.not_run) {
                (true, None) if page.setting.is_none() => {
                    wrong.push(format!(
                        "{place}: the page does not say where its commands are typed: <!-- test: … -->"
                    ));
                }
                (true, None) => typed += 1,
                (_, None) => wrong
                    .push(format!("{place}: this block is not run; give the reason: <!-- not run: … -->")),
                (_, Some(_)) if ["sh", "console"].contains(&block.language()) => commands_not_typed += 1,
                (_, Some(_)) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(typed >= 30 && commands_not_typed <= 20, "typed: {typed}, not typed: {commands_not_typed}");
    Ok(())
}

/// Commands of runbooks have placeholders, so they are only parsed.
#[tokio::test]
async fn the_commands_of_runbooks_exist() -> Result<()> {
    let mut checked = 0;
    for page in pages(&root()?)?.iter().filter(|page| page.name.starts_with("docs/runbooks/")) {
        let spans = page.text.lines().filter_map(|line| line.split_once(". `brokkr")?.1.split_once('`'));
        for (rest, _) in spans {
            let command = format!("brokkr{rest}");
            let mut words = command.split_whitespace().map(filled_in);
            let name = words.next().unwrap_or_default();
            // `--help` succeeds if everything before it is valid.
            let launch = Launch::new(name.as_str(), program(&name)?).args(words).arg("--help");
            run(launch, TYPING).await?.ok().with_context(|| format!("{}: `{command}`", page.name))?;
            checked += 1;
        }
    }
    assert!(checked >= 20, "{checked}");
    Ok(())
}

/// Replaces placeholders such as `agent/NAME` by a name.
fn filled_in(word: &str) -> String {
    word.split('/')
        .map(|part| if part.chars().all(|c| c.is_ascii_uppercase()) { "x" } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

#[tokio::test]
async fn the_commands_of_the_documentation_work_as_they_are_written() -> Result<()> {
    let wanted = std::env::var("BROKKR_PAGES").unwrap_or_default();
    let is_recording = std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always");
    let root = root()?;
    let mut pages = pages(&root)?;
    pages.retain(|page| page.setting == Some(Setting::DevFleet) && page.name.contains(&wanted));
    assert!(!pages.is_empty(), "no page matches {wanted:?}");

    let fleet = DevFleet::start(&root).await?;
    let mut wrong = Vec::new();
    for page in &pages {
        let started = Instant::now();
        let output = fleet.types(page).await?;
        wrong.extend(output.complaint.iter().map(|complaint| format!("{}: {complaint}", page.name)));
        if is_recording && output.complaint.is_none() {
            fs::write(root.join(&page.name), record::recorded(page, &output))?;
        } else {
            wrong
                .extend(compare::differences(page, &output).iter().map(|one| format!("{}:{one}", page.name)));
        }
        fleet.tidy_up().await.with_context(|| format!("after {}", page.name))?;
        eprintln!("{}: {} commands, {:.1?}", page.name, output.outputs.len(), started.elapsed());
    }
    fleet.stop().await?;
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// The fleet of `cargo xtask dev`.
struct DevFleet {
    process: Process,
    scratch: Scratch,
}

impl DevFleet {
    async fn start(root: &Path) -> Result<Self> {
        let scratch = Scratch::new("pages")?;
        // A copy outside the work tree: otherwise the history would show its current commit.
        fs::create_dir_all(scratch.join("examples/hello"))?;
        for entry in fs::read_dir(root.join("examples/hello"))? {
            let entry = entry?;
            fs::copy(entry.path(), scratch.join("examples/hello").join(entry.file_name()))?;
        }
        let launch = Launch::new("dev-fleet", program("dev-fleet")?).folder(scratch.path());
        let process = Process::start(launch, scratch.path())?;
        let fleet = Self { process, scratch };
        let environment = fleet.environment();
        eventually(STARTING, "the fleet to be up", async || {
            environment.is_file() && fleet.process.log().contains("Ctrl-C here")
        })
        .await?;
        let script = format!(
            "seq {IDS_TO_USE_UP} | xargs -P 4 -I% brokkr apply burnt -q -f examples/hello >burnt.log 2>&1\n\
             brokkr stack delete burnt --yes\n"
        );
        fleet.run_script(&script).await.context("using up sequence ids")?;
        Ok(fleet)
    }

    fn environment(&self) -> PathBuf {
        self.scratch.join("target/dev/env")
    }

    /// Types the commands of the page in a separate folder.
    async fn types(&self, page: &Page) -> Result<shell::PageOutput> {
        let folder = self.scratch.join(format!("typed/{}", page.name.replace('/', "-")));
        fs::create_dir_all(&folder)?;
        for name in ["examples", "target"] {
            std::os::unix::fs::symlink(self.scratch.join(name), folder.join(name))?;
        }
        shell::type_in(page, &folder, TYPING).await
    }

    /// Removes everything that a page has created.
    async fn tidy_up(&self) -> Result<()> {
        let script = "for agent in shop-1 shop-2; do replug $agent; done\n\
                      for stack in $(brokkr status -o name); do brokkr stack delete ${stack#stack/} --yes --wait; done\n\
                      for agent in shop-1 shop-2; do\n\
                        kubectl --context $agent get namespaces -o name | { grep -v -e /kube- -e /default -e /brokkr-system || true; } |\n\
                          xargs -r kubectl --context $agent delete\n\
                      done\n";
        self.run_script(script).await
    }

    async fn run_script(&self, script: &str) -> Result<()> {
        let script = format!("set -euo pipefail\n. target/dev/env\n{script}");
        let launch = Launch::new("bash", "/bin/bash").args(["-c", &script]).folder(self.scratch.path());
        run(launch, TYPING).await?.ok()?;
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        self.process.stop().await?;
        assert!(!self.environment().exists(), "nothing is left behind");
        Ok(())
    }
}
