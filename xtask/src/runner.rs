//! Cargo, the test runner, and becoming another program.
//!
//! The last step of a command replaces this process instead of waiting for a child, so that Ctrl-C and exit codes need no
//! forwarding.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A selection of tests.
pub struct Tests<'a> {
    /// Packages and targets, as arguments of cargo.
    pub selection: &'a [&'a str],
    /// Parts of test names; all tests if there are none.
    pub filters: &'a [&'a str],
}

/// Runs `cargo build` with these arguments.
pub fn build(arguments: &[&str]) -> Result<()> {
    finish_build(cargo().arg("build").args(arguments))
}

/// Builds all programs and tests. Tests are then selected by an expression of the test runner: with a part of the targets, cargo
/// would build the dependencies once more with other features.
pub fn build_tests() -> Result<()> {
    build(&["--workspace", "--bins", "--tests"])
}

/// Runs `cargo build` with another target folder.
pub fn build_into(target: &Path, arguments: &[&str]) -> Result<()> {
    finish_build(cargo().arg("build").args(arguments).arg("--target-dir").arg(target))
}

/// Read by `crates/agent/src/version.rs`.
const VERSION_STAMP: &str = "BROKKR_VERSION_STAMP";

/// Builds statically linked programs and returns their folder. They are built apart from the tests, because the linker's
/// flags differ. `stamp` is the version of the agent, if it is not that of the workspace.
pub fn build_static(profile: &str, programs: &[&str], stamp: Option<&str>) -> Result<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join("static");
    let mut build = cargo();
    build.args(["build", "--locked", "--profile", profile, "--target", &triple]);
    build.args(programs.iter().flat_map(|program| ["--bin", program]));
    // A target is named, so that build scripts and macros, which are shared libraries, are built without the flag.
    build.arg("--target-dir").arg(&target).env("RUSTFLAGS", "-C target-feature=+crt-static");
    // Small programs, because tests import their images into nodes again and again.
    build.env("CARGO_PROFILE_DEV_STRIP", "true");
    match stamp {
        Some(version) => build.env(VERSION_STAMP, version),
        None => build.env_remove(VERSION_STAMP),
    };
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

/// Becomes the program that starts the shared engines and then runs the test runner.
pub fn become_engines_then(tests: &Tests<'_>, environment: &[(&str, String)]) -> Result<()> {
    let runner = runner(cargo(), tests);
    become_built("with-engines", |command| {
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.arg(runner.get_program()).args(runner.get_args())
    })
}

/// This workspace or a copy of it, with a target folder.
pub struct Workspace {
    root: PathBuf,
    /// None for the target folder that cargo would choose.
    target: Option<PathBuf>,
    /// The folder with the built programs.
    programs: PathBuf,
}

impl Workspace {
    pub fn own() -> Result<Self> {
        let this = std::env::current_exe().context("cannot find the path of this program")?;
        let programs = this.parent().map(Path::to_owned).context("this program has no parent folder")?;
        Ok(Self { root: root(), target: None, programs })
    }

    /// Describes a copy of the workspace.
    pub fn at(root: PathBuf, target: PathBuf) -> Self {
        Self { programs: target.join("debug"), root, target: Some(target) }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn build(&self, arguments: &[&str]) -> Result<()> {
        finish_build(self.cargo().arg("build").args(arguments))
    }

    /// Runs tests inside the program that starts the shared engines, and passes every line of output on; returns whether
    /// all passed.
    pub fn run_tests(
        &self,
        tests: &Tests<'_>,
        environment: &[(&str, String)],
        mut on_line: impl FnMut(&str),
    ) -> Result<bool> {
        let runner = runner(self.cargo(), tests);
        let mut command = Command::new(self.programs.join("with-engines"));
        command.current_dir(&self.root).arg(runner.get_program()).args(runner.get_args());
        command.envs(runner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        // One pipe for both, so that lines stay in order and this program's stdout has its own output only.
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        let mut child =
            command.stdout(writer.try_clone()?).stderr(writer).spawn().context("cannot start the engines")?;
        drop(command);
        for line in BufReader::new(reader).lines() {
            on_line(&line?);
        }
        Ok(child.wait()?.success())
    }

    fn cargo(&self) -> Command {
        let mut cargo = cargo();
        cargo.current_dir(&self.root);
        if let Some(target) = &self.target {
            cargo.env("CARGO_TARGET_DIR", target);
        }
        cargo
    }
}

fn runner(mut cargo: Command, tests: &Tests<'_>) -> Command {
    if has_nextest() {
        cargo.args(["nextest", "run"]).args(tests.selection).args(tests.filters);
    } else {
        eprintln!("cargo-nextest is not installed; using the slower `cargo test`");
        cargo.arg("test").args(tests.selection).arg("--").args(tests.filters);
    }
    cargo
}

/// Becomes a program of the workspace, which must have been built.
pub fn become_built(name: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    let program = built(name)?;
    let mut command = Command::new(&program);
    let error = prepare(command.current_dir(root())).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Returns the path of a program of the workspace.
pub fn built(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(this.with_file_name(name))
}

/// Becomes a program of another target folder.
pub fn become_at(program: &Path, arguments: &[String]) -> Result<()> {
    let error = Command::new(program).args(arguments).current_dir(root()).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Returns a command that runs cargo in the root of the workspace.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

fn has_nextest() -> bool {
    let status = cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
