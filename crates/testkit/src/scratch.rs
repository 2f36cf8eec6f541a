//! Temporary folders that are gone at the end, also when their owner was killed.
//!
//! A folder is removed when it is dropped. A killed process drops nothing, so the owner holds a lock on a
//! file inside, and whoever next makes a scratch folder removes the old ones whose lock nobody holds.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "brokkr-test-";
const LOCK: &str = ".owner";
/// A folder younger than this may not have got its lock yet.
const GRACE: Duration = Duration::from_secs(60);

/// A temporary folder.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    pub fn new(what: &str) -> Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{what}-"))
            .tempdir()
            .context("cannot make a temporary folder")?;
        // PostgreSQL runs as another user and has to get through to its own folder inside.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the folder and answers its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.join(name);
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Removes what killed owners left. Nothing here may fail a test: what cannot be removed stays.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let old = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > GRACE));
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || !old {
            continue;
        }
        let abandoned = File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if abandoned {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
