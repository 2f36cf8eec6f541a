//! What an installation consists of, as a digest and as flags, so that a newer version can compare it with its own.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use sha2::{Digest as _, Sha256};

use super::{Profile, Rights};

/// Raised when the files are filled in differently. The chart has the same number in `templates/_files.tpl`.
pub(super) const LAYOUT: u32 = 1;

impl Rights {
    /// Returns the SHA-256 of the files that an installation with these flags consists of, before they are filled in and without
    /// comments. The chart computes the same, so the namespace, which Helm creates, is left out.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new_with_prefix(format!("layout {LAYOUT}\n"));
        for file in self.files() {
            for line in
                file.split_inclusive('\n').filter(|line| !line.trim_start_matches(' ').starts_with('#'))
            {
                hash.update(line);
            }
        }
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn files(&self) -> Vec<&'static str> {
        let mut files = vec![
            include_str!("../../../../deploy/record.yaml"),
            include_str!("../../../../deploy/fence.yaml"),
            include_str!("../../../../deploy/fence-agent.yaml"),
            include_str!("../../../../deploy/account.yaml"),
            include_str!("../../../../deploy/role-apps.yaml"),
        ];
        let optional = [
            (self.profile == Profile::Namespaces, include_str!("../../../../deploy/target-namespace.yaml")),
            (self.profile != Profile::Namespaces, include_str!("../../../../deploy/profile-apps.yaml")),
            (self.profile == Profile::Platform, include_str!("../../../../deploy/profile-platform.yaml")),
            (self.allow_upgrade.is_some(), include_str!("../../../../deploy/upgrade.yaml")),
            (!self.impersonate.is_empty(), include_str!("../../../../deploy/impersonate.yaml")),
            (!self.kinds.is_empty(), include_str!("../../../../deploy/kinds.yaml")),
            (!self.allow_role.is_empty(), include_str!("../../../../deploy/allowed-roles.yaml")),
        ];
        files.extend(optional.into_iter().filter(|(used, _)| *used).map(|(_, file)| file));
        files
    }

    /// Returns the flags, each as one argument.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let profile = self.profile.to_possible_value();
        let profile = profile.as_ref().map_or("apps", clap::builder::PossibleValue::get_name);
        let lists = [
            ("target-namespace", &self.target_namespace),
            ("kind", &self.kinds),
            ("impersonate", &self.impersonate),
            ("allow-role", &self.allow_role),
        ];
        let lists = lists.into_iter().filter(|(_, values)| !values.is_empty());
        let lists = lists.map(|(name, values)| format!("--{name}={}", values.join(",")));
        let repository = self.allow_upgrade.iter().map(|repository| format!("--allow-upgrade={repository}"));
        [format!("--profile={profile}")].into_iter().chain(lists).chain(repository).collect()
    }
}
