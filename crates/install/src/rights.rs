//! The objects that must exist before the agent starts: namespace, record CRD, ServiceAccount, permissions and admission
//! policy.

mod digest;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::{DOCUMENT_START, NAMESPACE, may_be_impersonated, read};

/// Label of the roles that depend on flags; the value is the namespace of the agent.
pub const RIGHTS_OF: &str = "brokkr.io/rights-of";

/// Flags for the permissions of an agent, shared by all commands that install one.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Rights {
    /// What stacks may contain
    #[arg(long, value_enum, default_value_t = Profile::Apps)]
    pub profile: Profile,
    /// Allow stacks in these namespaces, which must exist (with `--profile namespaces`)
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', required_if_eq("profile", "namespaces"))]
    pub target_namespace: Vec<String>,
    /// Allow stacks to contain this additional kind, such as `certificates.cert-manager.io` or `*.cert-manager.io`
    #[arg(long = "kind", value_name = "PLURAL.GROUP", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Allow the agent to impersonate this ServiceAccount (`NAMESPACE/brokkr-NAME`), so that grants can
    /// name it
    #[arg(long, value_name = "ACCOUNT", value_delimiter = ',')]
    pub impersonate: Vec<String>,
    /// Allow stacks to deliver and bind this ClusterRole (`NAME`) or Role (`NAMESPACE/NAME`), even if the fence
    /// forbids what it grants
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    pub allow_role: Vec<String>,
    /// Allow the agent to upgrade itself to images of this repository, such as `registry.example/brokkr-agent`
    #[arg(long, value_name = "REPOSITORY")]
    pub allow_upgrade: Option<String>,
}

/// What stacks may contain, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Namespaced kinds in the listed namespaces
    Namespaces,
    /// Namespaces, and namespaced kinds in all of them
    Apps,
    /// Also what operators need: definitions, ClusterRoles, webhook configurations and APIServices
    Platform,
}

impl Rights {
    /// Returns what stacks may do, and the exceptions from the fence, for the person who installs an agent.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut summary = self.profile.summary().to_owned();
        if !self.allow_role.is_empty() {
            summary.push_str(&format!("; exceptions from the fence: {}", self.allow_role.join(", ")));
        }
        if let Some(repository) = &self.allow_upgrade {
            summary.push_str(&format!("; the agent may upgrade itself to images of {repository}"));
        }
        summary
    }
}

impl Profile {
    fn summary(self) -> &'static str {
        match self {
            Self::Namespaces => "stacks may contain namespaced kinds in the listed namespaces",
            Self::Apps => {
                "stacks may contain Namespaces and namespaced kinds in every namespace except the agent's own"
            }
            Self::Platform => {
                "stacks may contain namespaced kinds, CustomResourceDefinitions, ClusterRoles, webhook configurations and \
                 APIServices, and may grant every permission that the fence does not forbid"
            }
        }
    }
}

/// Placeholder in the files for a listed namespace, or for the namespace of an account.
const TARGET: &str = "target-namespace";
/// Placeholder in the files for an account that the agent may impersonate.
const IMPERSONATED: &str = "brokkr-account";
/// The parts of the files that are filled in.
const NO_ACCOUNTS: &str = "  accounts: \"\"\n";
const NO_REPOSITORY: &str = "  upgrade-repository: \"\"\n";
const NO_DIGEST: &str = "  installation-digest: \"\"\n";
const NO_FLAGS: &str = "  installation-flags: \"\"\n";
const NO_RULES: &str = "rules: []\n";
/// The verbs of `deploy/role-apps.yaml`. A change of these and of how the files are filled in raises [`digest::LAYOUT`].
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const SUBRESOURCES: [&str; 3] = ["finalizers", "scale", "status"];
const SUBRESOURCE_VERBS: [&str; 5] = ["get", "list", "watch", "update", "patch"];
/// The API group and resource with which the fence asks for exceptions, as in `deploy/fence.yaml`.
pub const ALLOWED_ROLES: (&str, &str) = ("brokkr.io", "allowedroles");

/// Returns everything that is installed, in order.
pub fn manifests(arguments: &Rights, namespace: &str) -> anyhow::Result<Vec<Value>> {
    read(&text(arguments, namespace)?)
}

/// Returns the same as text with the comments of `deploy/`, for people who read it before they apply it.
pub fn text(arguments: &Rights, namespace: &str) -> anyhow::Result<String> {
    let accounts = accounts(&arguments.impersonate)?;
    let users: Vec<String> = accounts
        .iter()
        .map(|(namespace, name)| format!("system:serviceaccount:{namespace}:{name}"))
        .collect();
    let with_namespace = |file: &str| file.replace(NAMESPACE, namespace);
    let mut files = vec![
        with_namespace(include_str!("../../../deploy/namespace.yaml")),
        with_namespace(include_str!("../../../deploy/record.yaml")),
        // Before the roles, so that the agent can never write without the fence.
        with_namespace(include_str!("../../../deploy/fence.yaml")),
        with_namespace(include_str!("../../../deploy/fence-agent.yaml"))
            .replace(NO_ACCOUNTS, &accounts_line(&users))
            .replace(NO_REPOSITORY, &repository_line(arguments.allow_upgrade.as_deref())?)
            .replace(NO_DIGEST, &format!("  installation-digest: {}\n", arguments.digest()))
            .replace(
                NO_FLAGS,
                &format!("  installation-flags: {}\n", json!(json!(arguments.flags()).to_string())),
            ),
        with_namespace(include_str!("../../../deploy/account.yaml")),
        with_namespace(include_str!("../../../deploy/role-apps.yaml")),
    ];
    match arguments.profile {
        Profile::Namespaces => {
            let target = with_namespace(include_str!("../../../deploy/target-namespace.yaml"));
            files
                .extend(arguments.target_namespace.iter().map(|namespace| target.replace(TARGET, namespace)));
        }
        Profile::Apps => files.push(with_namespace(include_str!("../../../deploy/profile-apps.yaml"))),
        Profile::Platform => {
            files.push(with_namespace(include_str!("../../../deploy/profile-apps.yaml")));
            files.push(with_namespace(include_str!("../../../deploy/profile-platform.yaml")));
        }
    }
    if arguments.allow_upgrade.is_some() {
        files.push(with_namespace(include_str!("../../../deploy/upgrade.yaml")));
    }
    let role = with_namespace(include_str!("../../../deploy/impersonate.yaml"));
    let impersonate =
        |(namespace, name): &(String, String)| role.replace(TARGET, namespace).replace(IMPERSONATED, name);
    files.extend(accounts.iter().map(impersonate));
    files.extend(additional_kinds(arguments, &with_namespace(include_str!("../../../deploy/kinds.yaml")))?);
    files.extend(allowed_roles(
        &arguments.allow_role,
        &with_namespace(include_str!("../../../deploy/allowed-roles.yaml")),
    )?);
    Ok(["", &files.join(DOCUMENT_START)].join(DOCUMENT_START))
}

fn accounts_line(users: &[String]) -> String {
    format!("  accounts: {}\n", json!(users.join(" ")))
}

/// The fence compares the repository with what precedes the digest of an image.
fn repository_line(repository: Option<&str>) -> anyhow::Result<String> {
    let repository = repository.unwrap_or_default();
    let has_tag = repository.rsplit('/').next().is_some_and(|name| name.contains(':'));
    ensure!(
        !has_tag && !repository.contains(|c: char| c == '@' || c.is_whitespace()),
        "--allow-upgrade {repository}: use the name of a repository, without a tag or digest"
    );
    Ok(format!("  upgrade-repository: {}\n", json!(repository)))
}

/// Parses `namespace/brokkr-name`. The admission policy restricts only accounts with such names, so no others are allowed.
fn accounts(arguments: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    arguments
        .iter()
        .map(|account| {
            let (namespace, name) = account
                .split_once('/')
                .with_context(|| format!("--impersonate {account}: use NAMESPACE/brokkr-NAME"))?;
            ensure!(
                may_be_impersonated(name),
                "--impersonate {account}: Brokkr's admission policy restricts only accounts named brokkr-…, so an agent may \
                 not impersonate others"
            );
            Ok((namespace.to_owned(), name.to_owned()))
        })
        .collect()
}

/// Fills in `file`, which has a role and two bindings; the profile decides which binding is used.
fn additional_kinds(arguments: &Rights, file: &str) -> anyhow::Result<Vec<String>> {
    let mut rules = vec!["rules:".to_owned()];
    for kind in &arguments.kinds {
        let (plural, group) =
            kind.split_once('.').with_context(|| format!("--kind {kind}: use PLURAL.GROUP"))?;
        let guarded = group == "admissionregistration.k8s.io" && !plural.ends_with("webhookconfigurations")
            || group == "*"
            || group.is_empty();
        ensure!(
            !guarded && group != "brokkr.io" && group != "authentication.k8s.io" && !plural.contains('/'),
            "--kind {kind}: the agent cannot get permissions on its own admission policy and records, on tokens, or on \
             subresources"
        );
        let subresources = SUBRESOURCES.map(|name| format!("{plural}/{name}"));
        rules.push(rule(json!({"apiGroups": [group], "resources": [plural], "verbs": VERBS})));
        rules
            .push(rule(json!({"apiGroups": [group], "resources": subresources, "verbs": SUBRESOURCE_VERBS})));
    }
    let rules = rules.join("\n") + "\n";
    let mut parts = file.split(DOCUMENT_START);
    let (Some(role), Some(cluster_binding), Some(namespace_binding)) =
        (parts.next(), parts.next(), parts.next())
    else {
        bail!("deploy/kinds.yaml must contain a role and two bindings");
    };
    Ok(match arguments.profile {
        _ if arguments.kinds.is_empty() => Vec::new(),
        Profile::Apps | Profile::Platform => vec![role.replace(NO_RULES, &rules), cluster_binding.to_owned()],
        Profile::Namespaces => {
            let bindings =
                arguments.target_namespace.iter().map(|target| namespace_binding.replace(TARGET, target));
            [role.replace(NO_RULES, &rules)].into_iter().chain(bindings).collect()
        }
    })
}

/// Returns the exceptions of the fence.
fn allowed_roles(roles: &[String], file: &str) -> anyhow::Result<Option<String>> {
    for role in roles {
        let name = role.rsplit('/').next().unwrap_or_default();
        ensure!(
            !name.is_empty() && name != "cluster-admin" && !name.starts_with("brokkr-"),
            "--allow-role {role}: use NAME for a ClusterRole or NAMESPACE/NAME for a Role; cluster-admin and the roles of \
             Brokkr cannot be allowed"
        );
    }
    let (group, resource) = ALLOWED_ROLES;
    let allowed = rule(
        json!({"apiGroups": [group], "resources": [resource], "resourceNames": roles, "verbs": ["use"]}),
    );
    Ok((!roles.is_empty()).then(|| file.replace(NO_RULES, &format!("rules:\n{allowed}\n"))))
}

fn rule(rule: Value) -> String {
    format!("- {rule}")
}

#[cfg(test)]
mod tests;
