//! A cache of resource names for completion.
//!
//! Files are in `$XDG_CACHE_HOME/brokkr/names/`, one per noun and key, readable only by their owner, without secrets. A file
//! that is expired, damaged, unreadable or from the future is ignored. If no file can be written, every completion asks the
//! broker.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brokkr_api::ids::Checksum;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::config::replace;

/// How long names are valid.
const VALID_FOR: SignedDuration = SignedDuration::from_secs(60);
/// Files of tokens and brokers that are no longer used are deleted after this time.
const EXPIRED_AFTER: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub struct NameCache {
    folder: PathBuf,
    cache_key: Checksum,
}

#[derive(Serialize, Deserialize)]
struct CachedNames {
    at: Timestamp,
    names: Vec<String>,
}

impl NameCache {
    /// Returns the cache for a key: a digest of broker, project and token, because they determine the visible names.
    pub fn of(cache_key: Checksum) -> Option<Self> {
        let set =
            |name: &str| -> Option<OsString> { std::env::var_os(name).filter(|value| !value.is_empty()) };
        let parent = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
        Some(Self { folder: parent.join("brokkr/names"), cache_key })
    }

    pub fn read(&self, noun: &str, now: Timestamp) -> Option<Vec<String>> {
        let cached: CachedNames = serde_json::from_slice(&std::fs::read(self.path(noun)).ok()?).ok()?;
        let age = now.duration_since(cached.at);
        (SignedDuration::ZERO <= age && age < VALID_FOR).then_some(cached.names)
    }

    pub fn write(&self, noun: &str, names: &[String], now: Timestamp) {
        let cached = CachedNames { at: now, names: names.to_vec() };
        // A failed write only costs another request.
        if let Ok(text) = serde_json::to_string(&cached) {
            replace(&self.path(noun), &text).ok();
        }
        delete_expired(&self.folder);
    }

    fn path(&self, noun: &str) -> PathBuf {
        self.folder.join(format!("{noun}-{}.json", self.cache_key))
    }
}

fn delete_expired(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|at| at.elapsed());
        if matches!(age, Ok(Ok(age)) if age > EXPIRED_AFTER) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn cache(folder: &Path) -> NameCache {
        NameCache { folder: folder.join("names"), cache_key: Checksum::of(b"ana") }
    }

    #[test]
    fn names_are_valid_for_a_minute_and_for_their_key() {
        let home = tempfile::tempdir().unwrap();
        let ana = cache(home.path());
        assert_eq!(ana.read("stacks", now()), None);
        ana.write("stacks", &["web".to_owned()], now());
        let later = |seconds| now() + SignedDuration::from_secs(seconds);
        assert_eq!(ana.read("stacks", later(59)), Some(vec!["web".to_owned()]));
        assert_eq!((ana.read("stacks", later(60)), ana.read("stacks", later(-1))), (None, None));
        assert_eq!(ana.read("agents", now()), None);
        let ben = NameCache { cache_key: Checksum::of(b"ben"), ..ana.clone() };
        assert_eq!(ben.read("stacks", now()), None);
        let mode = std::fs::metadata(ana.path("stacks")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_or_unwritable_file_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let ana = cache(home.path());
        ana.write("stacks", &["web".to_owned()], now());
        std::fs::write(ana.path("stacks"), b"{\"at\":").unwrap();
        assert_eq!(ana.read("stacks", now()), None);
        std::fs::write(home.path().join("file"), b"").unwrap();
        let nowhere = NameCache { folder: home.path().join("file/names"), ..ana };
        nowhere.write("stacks", &["web".to_owned()], now());
        assert_eq!(nowhere.read("stacks", now()), None);
    }

    #[test]
    fn old_files_are_deleted() {
        let home = tempfile::tempdir().unwrap();
        let ana = cache(home.path());
        let old = NameCache { cache_key: Checksum::of(b"ben"), ..ana.clone() };
        old.write("stacks", &[], now());
        let file = std::fs::File::options().append(true).open(old.path("stacks")).unwrap();
        file.set_modified(std::time::SystemTime::now() - 2 * EXPIRED_AFTER).unwrap();
        ana.write("stacks", &[], now());
        assert!(ana.path("stacks").exists() && !old.path("stacks").exists());
    }
}
