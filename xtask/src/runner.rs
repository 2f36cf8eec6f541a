//! Cargo, the test runner, and becoming another program.
//!
//! The last step of a command replaces this process instead of waiting for a child: Ctrl-C and exit codes
//! then need no passing on.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Which tests to run.
pub struct Tests<'a> {
    /// Packages and targets, as cargo takes them.
    pub selection: &'a [&'a str],
    /// Only tests whose names contain one of these; all if there are none.
    pub filters: &'a [&'a str],
}

/// Runs `cargo build` with these arguments.
pub fn build(arguments: &[&str]) -> Result<()> {
    finish_build(cargo().arg("build").args(arguments))
}

/// The same, into another target folder.
pub fn build_into(target: &Path, arguments: &[&str]) -> Result<()> {
    finish_build(cargo().arg("build").args(arguments).arg("--target-dir").arg(target))
}

/// Builds programs that need nothing of the machine they run on, and answers the folder that they are in. Everything is
/// compiled apart from what tests use: the linker's flags differ.
pub fn build_static(profile: &str, programs: &[&str]) -> Result<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join("static");
    let mut build = cargo();
    build.args(["build", "--locked", "--profile", profile, "--target", &triple]);
    build.args(programs.iter().flat_map(|program| ["--bin", program]));
    // A target is named, so that build scripts and macros, which are shared libraries, go without the flag.
    build.arg("--target-dir").arg(&target).env("RUSTFLAGS", "-C target-feature=+crt-static");
    finish_build(&mut build)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target.join(triple).join(folder))
}

fn finish_build(build: &mut Command) -> Result<()> {
    let status = build.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo build failed");
    }
    Ok(())
}

/// Becomes the test runner, inside the program that starts the shared engines for it.
pub fn become_engines_then(tests: &Tests<'_>, seed: Option<u64>) -> Result<()> {
    let runner = runner(tests);
    become_built("with-engines", |command| {
        if let Some(seed) = seed {
            command.env("BROKKR_SEED", seed.to_string());
        }
        command.arg(runner.get_program()).args(runner.get_args())
    })
}

/// Runs the tests as [`become_engines_then`] does, and hears every line of theirs; answers whether all passed.
pub fn engines_then(
    tests: &Tests<'_>,
    environment: &[(&str, String)],
    mut hear: impl FnMut(&str),
) -> Result<bool> {
    let runner = runner(tests);
    let mut command = Command::new(built("with-engines")?);
    command.current_dir(root()).arg(runner.get_program()).args(runner.get_args());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    // One pipe for both, so that lines stay in order and stdout stays ours.
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    let mut child =
        command.stdout(writer.try_clone()?).stderr(writer).spawn().context("cannot start the engines")?;
    drop(command);
    for line in BufReader::new(reader).lines() {
        hear(&line?);
    }
    Ok(child.wait()?.success())
}

fn runner(tests: &Tests<'_>) -> Command {
    let mut runner = cargo();
    if has_nextest() {
        runner.args(["nextest", "run"]).args(tests.selection).args(tests.filters);
    } else {
        eprintln!("cargo-nextest is not installed; `cargo test` does it more slowly");
        runner.arg("test").args(tests.selection).arg("--").args(tests.filters);
    }
    runner
}

/// Becomes a binary of the workspace, which has to be built already.
pub fn become_built(name: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    let program = built(name)?;
    let mut command = Command::new(&program);
    let error = prepare(command.current_dir(root())).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

fn built(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    Ok(this.with_file_name(name))
}

/// Becomes a program that was built elsewhere.
pub fn become_at(program: &Path, arguments: &[String]) -> Result<()> {
    let error = Command::new(program).args(arguments).current_dir(root()).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Cargo, in the root of the workspace.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

fn has_nextest() -> bool {
    let asked = cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}
