//! `cargo xtask console`: builds the web console, which the broker then contains.
//!
//! Node is only needed here. The version is pinned and comes from the registry of npm, so that the version of the system does not
//! matter; `npm` itself is that of the system.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use brokkr_engines::{NODE, install_node};

use crate::runner::root;

const COMPRESS: &str = include_str!("console/compress.mjs");
/// Packages of their own: the generator of the API types needs another version of TypeScript.
const PACKAGES: [&str; 2] = [".", "openapi"];

/// Build the web console, or check it. Needs npm.
#[derive(clap::Args)]
pub struct Args {
    /// Run the linter, the tests and the check of the sizes.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let node = install_node().with_context(|| format!("cannot install Node {NODE}; npm is needed"))?;
    let console = Console { node, folder: root().join("console") };
    console.install()?;
    console.npm(&["run", "build"])?;
    console.compress()?;
    notify_cargo()?;
    if args.check {
        for script in ["lint", "test", "size"] {
            console.npm(&["run", script])?;
        }
    }
    Ok(())
}

/// The sources of the console, and the folder with the program that builds them.
struct Console {
    node: PathBuf,
    folder: PathBuf,
}

impl Console {
    /// Installs exactly the packages of the lock files.
    fn install(&self) -> Result<()> {
        for package in PACKAGES {
            self.npm(&["ci", "--prefix", package])?;
        }
        Ok(())
    }

    fn npm(&self, arguments: &[&str]) -> Result<()> {
        let what = format!("npm {}", arguments.join(" "));
        finish(Command::new("npm").args(arguments).current_dir(&self.folder).env("PATH", self.path()?), &what)
    }

    /// Writes compressed variants beside the files.
    fn compress(&self) -> Result<()> {
        let mut node = Command::new(self.node.join("node"));
        node.args(["--input-type=module", "--eval", COMPRESS]).current_dir(&self.folder);
        finish(&mut node, "compressing the files")
    }

    /// Returns the search path in which this Node is the first.
    fn path(&self) -> Result<OsString> {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.node.clone()).chain(std::env::split_paths(&others));
        std::env::join_paths(folders).context("the path of the cache cannot be in PATH")
    }
}

/// Changes the time of the build script. It watches the files only if there were some when it last ran; and a folder that was
/// restored from a cache may have old times.
fn notify_cargo() -> Result<()> {
    let script = root().join("crates/console/build.rs");
    let file = File::options().append(true).open(&script);
    file.and_then(|file| file.set_modified(SystemTime::now()))
        .with_context(|| format!("cannot change the time of {}", script.display()))
}

fn finish(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("{what}: npm is needed"))?;
    if !status.success() {
        bail!("{what} failed");
    }
    Ok(())
}
