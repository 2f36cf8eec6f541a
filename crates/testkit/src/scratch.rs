//! Temporary folders that are removed even if their owner is killed.
//!
//! A folder is removed when it is dropped. A killed process drops nothing, so the owner holds a lock on a file inside, and the
//! next process that creates a scratch folder removes old ones that are not locked.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "brokkr-test-";
const LOCK: &str = ".owner";
/// A folder younger than this may not be locked yet.
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
            .context("cannot create a temporary folder")?;
        // PostgreSQL runs as another user and needs access to its own folder inside.
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

    /// Writes a file into the folder and returns its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.join(name);
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Removes the folders of killed owners. Errors are ignored, because they must not fail a test.
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
