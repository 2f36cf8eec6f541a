//! Builds missing engines. Everything is made under a temporary name and then renamed, so that an interrupted build leaves
//! nothing that looks complete, and concurrent builds do not disturb each other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cache::{self, SOURCES};
use crate::catalog::{Data, MODULES, Module, OLDER_KUBERNETES};

/// One binary, and how long its build took.
#[derive(Debug)]
pub struct Built {
    pub name: &'static str,
    pub path: PathBuf,
    /// None if it existed already.
    pub took: Option<Duration>,
}

/// Builds every missing engine. `on_build` is called before each build, which can take
/// minutes the first time.
pub fn build_all(mut on_build: impl FnMut(&str)) -> io::Result<Vec<Built>> {
    let mut built = Vec::new();
    for module in MODULES {
        built.extend(build_module(module, &mut on_build)?);
    }
    Ok(built)
}

/// Builds the older versions of Kubernetes that are missing.
pub fn build_older_kubernetes(mut on_build: impl FnMut(&str)) -> io::Result<Vec<Built>> {
    let mut built = Vec::new();
    for (version, module) in OLDER_KUBERNETES {
        built.extend(build_module(module, |name| on_build(&format!("{name} {version}")))?);
    }
    Ok(built)
}

/// Builds one module if it is missing.
pub fn build_module(module: &Module, mut on_build: impl FnMut(&str)) -> io::Result<Vec<Built>> {
    let mut built = Vec::new();
    let folder = cache::folder(module)?;
    fs::create_dir_all(&folder)?;
    for binary in module.binaries {
        let path = folder.join(binary.name);
        let mut took = None;
        if !path.is_file() {
            on_build(binary.name);
            let started = Instant::now();
            build(module, binary.package, &path)?;
            took = Some(started.elapsed());
        }
        built.push(Built { name: binary.name, path, took });
    }
    if let Some(data) = &module.data {
        copy_data(module, data, &folder)?;
    }
    if !folder.join(SOURCES).is_file() {
        fs::write(folder.join(SOURCES), cache::sources_digest(module)?)?;
    }
    Ok(built)
}

fn build(module: &Module, package: &str, path: &Path) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut go = Command::new("go");
    if module.is_static {
        go.env("CGO_ENABLED", "0");
    }
    let status = go
        .args(["build", "-trimpath", "-tags", module.tags, "-ldflags", &module.link_flags(), "-o"])
        .arg(&unfinished)
        .arg(package)
        .current_dir(cache::module_folder(module))
        // A user's workspace file above the clone must not affect the build.
        .env("GOWORK", "off")
        .status()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("cannot run go, which builds the engines: {error}"))
        })?;
    if !status.success() {
        return Err(io::Error::other(format!("go build {package} failed ({status})")));
    }
    fs::rename(&unfinished, path)
}

/// Copies the data files of a dependency beside the binaries, unless they exist.
fn copy_data(module: &Module, data: &Data, folder: &Path) -> io::Result<()> {
    let finished = folder.join(data.into);
    if finished.is_dir() {
        return Ok(());
    }
    let unfinished = unfinished(&finished);
    fs::create_dir_all(&unfinished)?;
    let source = dependency_folder(module, data.module)?;
    for (number, (below, prefix)) in data.folders.iter().enumerate() {
        for entry in fs::read_dir(source.join(below))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) && name.ends_with(".yaml") {
                // The number keeps files of the same name from different folders apart.
                // Written, not copied: Go's module cache is read-only, and so would the copy be.
                fs::write(unfinished.join(format!("{number}-{name}")), fs::read(entry.path())?)?;
            }
        }
    }
    match fs::rename(&unfinished, &finished) {
        // A concurrent build was first; its files are the same.
        Err(_) if finished.is_dir() => fs::remove_dir_all(&unfinished),
        renamed => renamed,
    }
}

fn dependency_folder(module: &Module, dependency: &str) -> io::Result<PathBuf> {
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", dependency])
        .current_dir(cache::module_folder(module))
        .output()?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !folder.is_empty() {
        Ok(PathBuf::from(folder))
    } else {
        Err(io::Error::other(format!("cannot find the files of {dependency} in Go's module cache")))
    }
}

fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}
