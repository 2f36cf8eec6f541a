//! Paths of programs: Brokkr's own beside the test executable, kubectl among the engines.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// Overrides the folder of the programs, for instance to test a released version.
const VARIABLE: &str = "BROKKR_BIN_DIR";

/// Returns the path of `brokkr`, `brokkr-broker` or `brokkr-agent`.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = folder()?.join(name);
    if !path.is_file() {
        bail!("{} is not built; run `cargo build --workspace --bins`", path.display());
    }
    Ok(path)
}

/// Returns the folder with the programs; test executables are in its subfolder `deps`.
pub fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return Ok(PathBuf::from(folder));
    }
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    let mut folder = this.parent().context("this program has no parent folder")?;
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder.parent().context("this program is not in a target folder")?;
    }
    Ok(folder.to_owned())
}

/// Returns the folder that contains kubectl.
pub fn kubectl_folder() -> Result<PathBuf> {
    engine_folder("kubectl")
}

/// Returns the folder that contains helm.
pub fn helm_folder() -> Result<PathBuf> {
    engine_folder("helm")
}

fn engine_folder(name: &str) -> Result<PathBuf> {
    let engines = brokkr_engines::locate()?;
    Ok(engines.binary(name).parent().with_context(|| format!("{name} is in no folder"))?.to_owned())
}
