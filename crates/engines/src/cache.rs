//! The cache folder of each module, and the binaries in it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::catalog::{MODULES, Module, OLDER_KUBERNETES};

/// The file in each cache folder with the digest of its sources, without the Go version. Machines without Go use it to
/// find the binaries.
pub(crate) const SOURCES: &str = "sources";

/// The paths of all engines.
#[derive(Clone, Debug)]
pub struct Engines {
    binaries: BTreeMap<&'static str, PathBuf>,
    stages: PathBuf,
}

impl Engines {
    /// Returns the path of a binary of the [catalog](MODULES).
    ///
    /// # Panics
    /// If the catalog has no such binary.
    pub fn binary(&self, name: &str) -> &Path {
        self.binaries.get(name).unwrap_or_else(|| panic!("there is no engine {name}"))
    }

    /// Returns all binaries by name.
    pub fn binaries(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.binaries.iter().map(|(name, path)| (*name, path.as_path()))
    }

    /// Returns the folder with the stage files of kwok.
    pub fn stages(&self) -> &Path {
        &self.stages
    }
}

/// A program has not been built or installed on this machine.
#[derive(Debug)]
pub struct Missing {
    what: String,
    /// The command that provides it, and what it does.
    remedy: &'static str,
}

impl Missing {
    fn engine(what: String) -> Self {
        Self { what, remedy: "`cargo xtask engines` builds the engines" }
    }

    pub(crate) fn of_console(what: String) -> Self {
        Self { what, remedy: "`cargo xtask console` installs it" }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Missing {}

/// The variable that selects an older version of Kubernetes.
const KUBERNETES: &str = "BROKKR_KUBERNETES";

/// Finds every engine, or returns which one is missing. Builds nothing.
pub fn locate() -> Result<Engines, Missing> {
    let mut binaries = BTreeMap::new();
    let mut stages = PathBuf::new();
    for module in MODULES.iter().chain(selected_kubernetes()?) {
        let folder = complete_folder(module)?;
        for binary in module.binaries {
            binaries.insert(binary.name, folder.join(binary.name));
        }
        if let Some(data) = &module.data {
            stages = folder.join(data.into);
        }
    }
    Ok(Engines { binaries, stages })
}

/// Returns the older version of Kubernetes that the environment selects, if any. It comes last, so its programs replace others.
fn selected_kubernetes() -> Result<Option<&'static Module>, Missing> {
    let Ok(wanted) = std::env::var(KUBERNETES) else { return Ok(None) };
    let found = OLDER_KUBERNETES.iter().find(|(version, _)| *version == wanted);
    match found {
        Some((_, module)) => Ok(Some(module)),
        None => {
            let known: Vec<&str> = OLDER_KUBERNETES.iter().map(|(version, _)| *version).collect();
            Err(Missing::engine(format!("{KUBERNETES} is {wanted}, but must be one of {}", known.join(", "))))
        }
    }
}

/// Finds the program of a module that tests do not use.
pub fn locate_peer(module: &Module) -> Result<PathBuf, Missing> {
    let [binary] = module.binaries else {
        return Err(Missing::engine(format!("{} does not have exactly one program", module.name)));
    };
    Ok(complete_folder(module)?.join(binary.name))
}

fn complete_folder(module: &Module) -> Result<PathBuf, Missing> {
    let folder = folder(module).map_err(|error| Missing::engine(error.to_string()))?;
    if is_complete(module, &folder) {
        Ok(folder)
    } else {
        Err(Missing::engine(format!("{} is not in {}", module.name, folder.display())))
    }
}

/// Returns whether the folder has all files of the module. Files appear by rename, so they are complete.
pub(crate) fn is_complete(module: &Module, folder: &Path) -> bool {
    module.binaries.iter().all(|binary| folder.join(binary.name).is_file())
        && module.data.as_ref().is_none_or(|data| folder.join(data.into).is_dir())
}

/// Returns the module's folder in the cache, whether or not it exists.
pub(crate) fn folder(module: &Module) -> io::Result<PathBuf> {
    let cache = cache_of("engines")?;
    let sources = sources_digest(module)?;
    match go_version(module) {
        Ok(version) => {
            let digest = hex(&Sha256::new().chain_update(&sources).chain_update(&version).finalize());
            Ok(cache.join(&digest[..24]))
        }
        Err(error) => built_from(&cache, &sources).ok_or(error),
    }
}

/// Returns a folder that was built from these sources by any version of Go, for machines without Go.
fn built_from(cache: &Path, sources: &str) -> Option<PathBuf> {
    fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path()).find(|folder| {
        fs::read_to_string(folder.join(SOURCES)).is_ok_and(|recorded| recorded.trim() == sources)
    })
}

/// Returns a digest of everything that determines the binaries, except the Go version.
pub(crate) fn sources_digest(module: &Module) -> io::Result<String> {
    let folder = module_folder(module);
    let mut digest = Sha256::new();
    let sources = ["go.mod", "go.sum"].map(|file| folder.join(file));
    for file in sources.into_iter().chain(programs(&folder)?) {
        let bytes = fs::read(file)?;
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(&bytes);
    }
    digest.update(module.link_flags());
    digest.update(module.tags);
    digest.update([u8::from(module.is_static)]);
    if let Some(data) = &module.data {
        digest.update(format!("{:?}", data.folders));
    }
    Ok(hex(&digest.finalize()))
}

/// Returns the version of Go that builds this module (its go.mod may select a toolchain).
fn go_version(module: &Module) -> io::Result<String> {
    let output = Command::new("go").args(["env", "GOVERSION"]).current_dir(module_folder(module)).output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(io::Error::other(format!("go env failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
    }
}

/// Returns the module's folder in the clone that this crate was compiled in.
pub(crate) fn module_folder(module: &Module) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(module.folder)
}

/// Returns the module's own source files; most modules have none.
fn programs(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "go") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns a folder of this project's cache.
pub(crate) fn cache_of(what: &str) -> io::Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("brokkr").join(what))
        .ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
