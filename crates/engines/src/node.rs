//! The pinned version of Node that builds and tests the web console. It is a package of npm, so that the version of the system does
//! not matter; `npm` itself is that of the system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::{Missing, cache_of};

pub const NODE: &str = "24.21.0";

/// Returns the folder with the program, and installs it if it is missing.
pub fn install_node() -> io::Result<PathBuf> {
    let (home, package) = (home()?, package()?);
    let folder = programs(&home, &package);
    if !folder.join("node").exists() {
        // In a folder of its own: otherwise npm looks for a package in the folders above.
        fs::create_dir_all(&home)?;
        let wanted = format!("{package}@{NODE}");
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--prefix"]).arg(&home).arg(&wanted);
        if !npm.status()?.success() {
            return Err(io::Error::other(format!("npm failed to install {wanted}")));
        }
    }
    Ok(folder)
}

/// Returns the program. Installs nothing.
pub fn locate_node() -> Result<PathBuf, Missing> {
    let program = home().and_then(|home| Ok(programs(&home, &package()?).join("node")));
    let program = program.map_err(|error| Missing::of_console(error.to_string()))?;
    if program.exists() {
        return Ok(program);
    }
    Err(Missing::of_console(format!("Node {NODE} is not in {}", program.display())))
}

fn home() -> io::Result<PathBuf> {
    Ok(cache_of("tools")?.join(format!("node-{NODE}")))
}

fn programs(home: &Path, package: &str) -> PathBuf {
    home.join("node_modules").join(package).join("bin")
}

fn package() -> io::Result<String> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => return Err(io::Error::other(format!("npm has no package of Node for {other}"))),
    };
    Ok(format!("node-linux-{architecture}"))
}
