//! Translates a container of a Pod to a command line of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};

use super::volumes::{Contents, Source};
use crate::cluster::{Facts, kubeconfig};
use crate::port::Port;
use crate::process::{Launch, ShowLog};
use crate::programs::program;

/// Brokkr's programs. The name of an image ends with the name of its program.
const PROGRAMS: [&str; 3] = ["brokkr", "brokkr-agent", "brokkr-broker"];
/// The address of test API servers.
const SERVER: &str = "127.0.0.1";
/// The mount path of a ServiceAccount.
const ACCOUNT_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns which of Brokkr's programs the Pod's first container runs, if any.
pub(super) fn program_of(pod: &Pod) -> Option<&'static str> {
    let first = pod.spec.as_ref()?.containers.first()?;
    program_in(first.image.as_deref()?)
}

fn program_in(image: &str) -> Option<&'static str> {
    let last = image.rsplit('/').next()?;
    let name = last.split(['@', ':']).next()?;
    PROGRAMS.into_iter().find(|program| *program == name)
}

/// The replacement for a Pod's file system and network.
pub(super) struct Stage<'a> {
    /// The folder of each volume.
    pub(super) volumes: &'a BTreeMap<String, PathBuf>,
    /// The port of this machine for each port of the Pod.
    pub(super) ports: &'a BTreeMap<u16, Port>,
    /// The address of the API server.
    pub(super) cluster: &'a Facts,
    /// The folder for generated files.
    pub(super) folder: &'a Path,
}

/// Returns the command line of a container.
pub(super) async fn launch(source: &Source<'_>, stage: &Stage<'_>, container: &Container) -> Result<Launch> {
    let image = container.image.as_deref().unwrap_or_default();
    let name = program_in(image).with_context(|| format!("the image {image} is none of Brokkr's"))?;
    let environment = environment(source, container).await?;
    let mounts = mounts(stage.volumes, container)?;
    let here = |text: &str| with_ports(&with_paths(text, &mounts), stage.ports);
    let words = container.command.iter().flatten().skip(1).chain(container.args.iter().flatten());
    let mut launch = Launch::new(format!("{}-{name}", container.name), program(name)?)
        .bare()
        .args(words.map(|word| here(&expanded(word, &environment))))
        .env("BROKKR_STABLE_AFTER", "0s")
        .show_log(ShowLog::Always);
    for (name, value) in &environment {
        launch = launch.env(name, here(value));
    }
    if let Some((_, folder)) = mounts.iter().find(|(path, _)| path == ACCOUNT_FOLDER) {
        launch = launch.env("KUBECONFIG", stage.kubeconfig(folder)?);
        // With a mounted account, programs connect to the API server without a proxy.
        let passed = environment.iter().rev().find(|(name, _)| name == "NO_PROXY");
        let passed = passed.map_or_else(|| SERVER.to_owned(), |(_, passed)| format!("{passed},{SERVER}"));
        launch = launch.env("NO_PROXY", passed);
    }
    Ok(launch)
}

impl Stage<'_> {
    /// Writes a kubeconfig with the token and the authority of a mounted ServiceAccount.
    fn kubeconfig(&self, account: &Path) -> Result<PathBuf> {
        let read = |name: &str| {
            fs::read_to_string(account.join(name)).with_context(|| format!("cannot read {name}"))
        };
        let (token, authority) = (read("token")?, read("ca.crt")?);
        let path = self.folder.join("kubeconfig");
        let url = &self.cluster.url;
        let context = kubeconfig::Context { name: "pod", url, authority: &authority, token: &token };
        kubeconfig::write(&path, &[context])?;
        Ok(path)
    }
}

/// Returns the folder of each mount, the longest path first.
fn mounts(volumes: &BTreeMap<String, PathBuf>, container: &Container) -> Result<Vec<(String, PathBuf)>> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let folder =
            volumes.get(&mount.name).with_context(|| format!("there is no volume {}", mount.name))?;
        let source = mount.sub_path.as_ref().map_or(folder.clone(), |below| folder.join(below));
        mounts.push((mount.mount_path.trim_end_matches('/').to_owned(), source));
    }
    mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    Ok(mounts)
}

async fn environment(source: &Source<'_>, container: &Container) -> Result<Vec<(String, String)>> {
    let mut environment: Vec<(String, String)> = Vec::new();
    for from in container.env_from.iter().flatten() {
        let contents = match (&from.secret_ref, &from.config_map_ref) {
            (Some(secret), _) => source.secret(&secret.name, secret.optional).await?,
            (None, Some(map)) => source.config_map(&map.name, map.optional).await?,
            (None, None) => Contents::new(),
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (name, value) in contents {
            environment.push((format!("{prefix}{name}"), String::from_utf8(value)?));
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(source, variable, &environment).await? {
            environment.push((variable.name.clone(), value));
        }
    }
    Ok(environment)
}

async fn value_of(
    source: &Source<'_>,
    variable: &EnvVar,
    earlier: &[(String, String)],
) -> Result<Option<String>> {
    let Some(from) = &variable.value_from else {
        return Ok(Some(expanded(variable.value.as_deref().unwrap_or_default(), earlier)));
    };
    let EnvVarSource { field_ref, secret_key_ref, config_map_key_ref, .. } = from;
    let (mut contents, key, optional) = match (field_ref, secret_key_ref, config_map_key_ref) {
        (Some(field), ..) => return Ok(Some(source.field(field)?)),
        (None, Some(secret), _) => {
            (source.secret(&secret.name, secret.optional).await?, &secret.key, secret.optional)
        }
        (None, None, Some(map)) => {
            (source.config_map(&map.name, map.optional).await?, &map.key, map.optional)
        }
        (None, None, None) => anyhow::bail!("the source of {} is not supported", variable.name),
    };
    match contents.remove(key) {
        Some(value) => Ok(Some(String::from_utf8(value)?)),
        None if optional == Some(true) => Ok(None),
        None => anyhow::bail!("{}: there is no key {key}", variable.name),
    }
}

/// Expands `$(NAME)` as Kubernetes does; unknown names stay.
fn expanded(text: &str, environment: &[(String, String)]) -> String {
    let known = |text: String, (name, value): &(String, String)| text.replace(&format!("$({name})"), value);
    environment.iter().rev().fold(text.to_owned(), known)
}

/// Replaces paths below a mount by paths below its folder. `/etc/brokkr` does not match `/etc/brokkr-other`.
fn with_paths(text: &str, mounts: &[(String, PathBuf)]) -> String {
    for (path, folder) in mounts {
        for (start, _) in text.match_indices(path.as_str()) {
            let (before, rest) = (&text[..start], &text[start + path.len()..]);
            let begins = !before.ends_with(|last: char| last.is_alphanumeric() || "/-_.".contains(last));
            if begins && (rest.is_empty() || rest.starts_with(['/', ',', ':'])) {
                let (before, rest) = (with_paths(before, mounts), with_paths(rest, mounts));
                return format!("{before}{}{rest}", folder.display());
            }
        }
    }
    text.to_owned()
}

/// Replaces a wildcard listen address by the loopback address and the leased port.
fn with_ports(text: &str, ports: &BTreeMap<u16, Port>) -> String {
    for (number, port) in ports {
        for every in ["0.0.0.0", "[::]"] {
            if text.ends_with(&format!("{every}:{number}")) {
                let kept = text.len() - every.len() - 1 - number.to_string().len();
                return format!("{}{}", &text[..kept], port.address());
            }
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_recognised_by_the_last_part_of_their_image() {
        assert_eq!(program_in("registry.example:5000/a/brokkr-agent:1.2"), Some("brokkr-agent"));
        assert_eq!(program_in("brokkr-broker@sha256:00"), Some("brokkr-broker"));
        assert_eq!(program_in("registry.example/brokkr-agent-tools:1"), None);
    }

    #[test]
    fn paths_below_a_mount_are_rewritten_and_others_stay() {
        let mounts = [("/etc/brokkr/join", "/s/join"), ("/etc/brokkr", "/s/all")]
            .map(|(path, folder)| (path.to_owned(), PathBuf::from(folder)));
        for (text, expected) in [
            ("/etc/brokkr/join/token", "/s/join/token"),
            ("--ca=/etc/brokkr/ca.crt", "--ca=/s/all/ca.crt"),
            ("/etc/brokkr", "/s/all"),
            ("/etc/brokkr/a,/etc/brokkr/join/b", "/s/all/a,/s/join/b"),
            ("/etc/brokkr-other/a", "/etc/brokkr-other/a"),
            ("/home/etc/brokkr/a", "/home/etc/brokkr/a"),
            ("https://broker.example", "https://broker.example"),
        ] {
            assert_eq!(with_paths(text, &mounts), expected);
        }
    }

    #[test]
    fn listen_addresses_are_rewritten_to_a_port_of_this_machine() {
        let ports = BTreeMap::from([(8780, Port::free().unwrap())]);
        let own = ports[&8780].address();
        assert_eq!(with_ports("0.0.0.0:8780", &ports), own);
        assert_eq!(with_ports("--listen=[::]:8780", &ports), format!("--listen={own}"));
        assert_eq!(with_ports("https://broker.example:8780", &ports), "https://broker.example:8780");
    }

    #[test]
    fn known_variables_are_expanded_and_others_stay() {
        let environment = [("A".to_owned(), "1".to_owned())];
        assert_eq!(expanded("$(A)-$(B)", &environment), "1-$(B)");
    }
}
