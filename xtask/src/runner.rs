//! Cargo, the test runner, and becoming another program.
//!
//! The last step of a command replaces this process instead of waiting for a child: Ctrl-C and exit codes
//! then need no passing on.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Which tests to run.
pub struct Tests<'a> {
    /// Packages and targets, as cargo takes them.
    pub selection: &'a [&'a str],
    /// Only tests whose names contain this.
    pub filter: Option<&'a str>,
}

/// Runs `cargo build` with these arguments.
pub fn build(arguments: &[&str]) -> Result<()> {
    let status = cargo().arg("build").args(arguments).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo build failed");
    }
    Ok(())
}

/// Becomes the test runner, inside the program that starts the shared engines for it.
pub fn become_engines_then(tests: &Tests<'_>, seed: Option<u64>) -> Result<()> {
    let mut runner = cargo();
    if has_nextest() {
        runner.args(["nextest", "run"]).args(tests.selection).args(tests.filter);
    } else {
        eprintln!("cargo-nextest is not installed; `cargo test` does it more slowly");
        runner.arg("test").args(tests.selection).args(tests.filter);
    }
    become_built("with-engines", |command| {
        if let Some(seed) = seed {
            command.env("BROKKR_SEED", seed.to_string());
        }
        command.arg(runner.get_program()).args(runner.get_args())
    })
}

/// Becomes a binary of the workspace, which has to be built already.
pub fn become_built(name: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    let program = this.with_file_name(name);
    let mut command = Command::new(&program);
    let error = prepare(command.current_dir(root())).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

fn has_nextest() -> bool {
    let asked = cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}
