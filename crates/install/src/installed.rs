//! What the ConfigMap of the fence says about an installation. Only the owner of the cluster can change it.

use std::collections::BTreeMap;

use clap::Parser as _;

use crate::NAMESPACE;
use crate::rights::Rights;

const REPOSITORY: &str = "upgrade-repository";
const DIGEST: &str = "installation-digest";
const FLAGS: &str = "installation-flags";
/// The release of the chart, if the chart installed it.
const RELEASE: &str = "installation-release";

/// The data of the ConfigMap.
#[derive(Clone, Copy, Debug)]
pub struct Installed<'a>(pub &'a BTreeMap<String, String>);

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    rights: Rights,
}

impl<'a> Installed<'a> {
    fn get(self, key: &str) -> Option<&'a str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the repository of the images to which the agent may upgrade itself.
    #[must_use]
    pub fn repository(self) -> Option<&'a str> {
        self.get(REPOSITORY)
    }

    /// Returns whether this build would install the same.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.rights().is_some_and(|rights| Some(rights.digest().as_str()) == self.get(DIGEST))
    }

    /// Returns the command with which the owner of the cluster installs what this version needs.
    #[must_use]
    pub fn command(self, namespace: &str, version: &str) -> String {
        if let Some(release) = self.get(RELEASE) {
            return format!(
                "helm upgrade {release} brokkr-agent --version {version} --namespace {namespace} --reuse-values"
            );
        }
        let flags = self.flags().unwrap_or_else(|| vec!["<the same flags as before>".to_owned()]);
        let namespace = (namespace != NAMESPACE).then(|| format!("--namespace={namespace}"));
        let words = namespace.into_iter().chain(flags).map(|word| quoted(&word));
        ["brokkr-agent install".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    }

    fn flags(self) -> Option<Vec<String>> {
        serde_json::from_str(self.get(FLAGS)?).ok()
    }

    fn rights(self) -> Option<Rights> {
        let flags = ["install".to_owned()].into_iter().chain(self.flags()?);
        Line::try_parse_from(flags).ok().map(|line| line.rights)
    }
}

/// Quotes a word for a shell, if it needs that.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,/:<>".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::manifests;

    fn data(arguments: &[&str]) -> BTreeMap<String, String> {
        let line = Line::try_parse_from(["install"].iter().chain(arguments)).unwrap();
        let objects = manifests(&line.rights, "elsewhere").unwrap();
        let map = objects.into_iter().find(|object| object["metadata"]["name"] == crate::FENCE).unwrap();
        serde_json::from_value(map["data"].clone()).unwrap()
    }

    #[test]
    fn an_installation_is_current_for_the_build_that_made_it_with_all_flags() {
        let all = [
            "--profile=namespaces",
            "--target-namespace=a,b",
            "--kind=*.example.com",
            "--impersonate=shop/brokkr-shop",
            "--allow-role=shop/tokens",
            "--allow-upgrade=registry.example/brokkr-agent",
        ];
        for arguments in [&all[..], &[], &["--profile=platform"]] {
            let mut data = data(arguments);
            assert!(Installed(&data).is_current(), "{arguments:?}");
            data.insert(DIGEST.to_owned(), "0".repeat(64));
            assert!(!Installed(&data).is_current());
        }
        assert_eq!(Installed(&data(&all)).repository(), Some("registry.example/brokkr-agent"));
        assert_eq!(
            Installed(&data(&all)).command("elsewhere", "0.2.0"),
            "brokkr-agent install --namespace=elsewhere --profile=namespaces --target-namespace=a,b \
             '--kind=*.example.com' --impersonate=shop/brokkr-shop --allow-role=shop/tokens \
             --allow-upgrade=registry.example/brokkr-agent"
        );
    }

    #[test]
    fn what_an_earlier_version_installed_is_not_current() {
        let data = BTreeMap::from([(REPOSITORY.to_owned(), String::new())]);
        assert!(!Installed(&data).is_current());
        assert_eq!(Installed(&data).repository(), None);
        assert!(Installed(&data).command(NAMESPACE, "0.2.0").contains("the same flags"));
    }

    #[test]
    fn a_release_of_the_chart_is_upgraded_with_the_chart() {
        let mut data = data(&[]);
        data.insert(RELEASE.to_owned(), "agent".to_owned());
        assert_eq!(
            Installed(&data).command("elsewhere", "0.2.0"),
            "helm upgrade agent brokkr-agent --version 0.2.0 --namespace elsewhere --reuse-values"
        );
    }

    #[test]
    fn the_digest_depends_on_the_files_that_the_flags_select() {
        let digests =
            [&[][..], &["--profile=platform"], &["--kind=a.example.com"], &["--kind=b.example.com"]]
                .map(|arguments| data(arguments)[DIGEST].clone());
        assert_eq!(digests[2], digests[3], "the kinds are flags");
        assert_eq!(digests.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }
}
