//! Names that a broker told a moment ago, so that pressing TAB twice asks once.
//!
//! They are in `$XDG_CACHE_HOME/brokkr/names/`, one file a noun and asker, readable by their owner only. Whatever is wrong with
//! such a file (old, damaged, not readable, of a clock that was ahead), it is as if there was none; and where none can be
//! written, the broker is asked each time. Nothing secret is in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brokkr_api::ids::Checksum;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::config::replace;

/// So long names are as good as new.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(60);
/// Of tokens and brokers that are no longer in use.
const SWEPT_AFTER: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub struct Remembered {
    folder: PathBuf,
    asker: Checksum,
}

#[derive(Serialize, Deserialize)]
struct Told {
    at: Timestamp,
    names: Vec<String>,
}

impl Remembered {
    /// What this asker was told: a digest of broker, project and token, because another one is told others.
    pub fn of(asker: Checksum) -> Option<Self> {
        let set =
            |name: &str| -> Option<OsString> { std::env::var_os(name).filter(|value| !value.is_empty()) };
        let parent = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
        Some(Self { folder: parent.join("brokkr/names"), asker })
    }

    pub fn read(&self, noun: &str, now: Timestamp) -> Option<Vec<String>> {
        let told: Told = serde_json::from_slice(&std::fs::read(self.path(noun)).ok()?).ok()?;
        let age = now.duration_since(told.at);
        (SignedDuration::ZERO <= age && age < GOOD_FOR).then_some(told.names)
    }

    pub fn write(&self, noun: &str, names: &[String], now: Timestamp) {
        let told = Told { at: now, names: names.to_vec() };
        // Somebody is typing: what cannot be remembered is asked for again.
        if let Ok(text) = serde_json::to_string(&told) {
            replace(&self.path(noun), &text).ok();
        }
        sweep(&self.folder);
    }

    fn path(&self, noun: &str) -> PathBuf {
        self.folder.join(format!("{noun}-{}.json", self.asker))
    }
}

fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|at| at.elapsed());
        if matches!(age, Ok(Ok(age)) if age > SWEPT_AFTER) {
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

    fn remembered(folder: &Path) -> Remembered {
        Remembered { folder: folder.join("names"), asker: Checksum::of(b"ana") }
    }

    #[test]
    fn names_are_good_for_a_minute_and_for_who_asked() {
        let home = tempfile::tempdir().unwrap();
        let ana = remembered(home.path());
        assert_eq!(ana.read("stacks", now()), None);
        ana.write("stacks", &["web".to_owned()], now());
        let later = |seconds| now() + SignedDuration::from_secs(seconds);
        assert_eq!(ana.read("stacks", later(59)), Some(vec!["web".to_owned()]));
        assert_eq!((ana.read("stacks", later(60)), ana.read("stacks", later(-1))), (None, None));
        assert_eq!(ana.read("agents", now()), None);
        let ben = Remembered { asker: Checksum::of(b"ben"), ..ana.clone() };
        assert_eq!(ben.read("stacks", now()), None);
        let mode = std::fs::metadata(ana.path("stacks")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_damaged_or_cannot_be_written_is_as_if_it_was_not_there() {
        let home = tempfile::tempdir().unwrap();
        let ana = remembered(home.path());
        ana.write("stacks", &["web".to_owned()], now());
        std::fs::write(ana.path("stacks"), b"{\"at\":").unwrap();
        assert_eq!(ana.read("stacks", now()), None);
        std::fs::write(home.path().join("file"), b"").unwrap();
        let nowhere = Remembered { folder: home.path().join("file/names"), ..ana };
        nowhere.write("stacks", &["web".to_owned()], now());
        assert_eq!(nowhere.read("stacks", now()), None);
    }

    #[test]
    fn what_nobody_uses_any_more_is_swept_away() {
        let home = tempfile::tempdir().unwrap();
        let ana = remembered(home.path());
        let old = Remembered { asker: Checksum::of(b"ben"), ..ana.clone() };
        old.write("stacks", &[], now());
        let file = std::fs::File::options().append(true).open(old.path("stacks")).unwrap();
        file.set_modified(std::time::SystemTime::now() - 2 * SWEPT_AFTER).unwrap();
        ana.write("stacks", &[], now());
        assert!(ana.path("stacks").exists() && !old.path("stacks").exists());
    }
}
