//! Self-contained kubeconfig files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One cluster and a user's token.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub name: &'a str,
    pub url: &'a str,
    /// The CA certificate, as PEM.
    pub authority: &'a str,
    pub token: &'a str,
}

/// Writes a kubeconfig with these contexts; the first is the current one.
pub fn write(path: &Path, contexts: &[Context<'_>]) -> Result<()> {
    let mut clusters = String::from("clusters:\n");
    let mut users = String::from("users:\n");
    let mut kube_contexts = String::from("contexts:\n");
    for Context { name, url, authority, token } in contexts {
        let authority = STANDARD.encode(authority);
        write!(
            clusters,
            "- name: {name}\n  cluster:\n    server: {url}\n    certificate-authority-data: {authority}\n"
        )?;
        write!(users, "- name: {name}\n  user:\n    token: {token}\n")?;
        write!(kube_contexts, "- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n")?;
    }
    let current = contexts.first().map_or("", |context| context.name);
    let text =
        format!("apiVersion: v1\nkind: Config\ncurrent-context: {current}\n{clusters}{users}{kube_contexts}");
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
