//! Renders manifests with the user's kustomize and helm, which have the plugins, repositories and logins.

use std::ffi::OsString;
use std::path::Path;

use crate::args::Content;
use crate::failure::{Exit, Failure, Result};
use crate::printer::Printer;
use crate::program::{self, ProgramError};

/// A program and its arguments.
#[derive(Debug, PartialEq, Eq)]
struct Invocation {
    program: &'static str,
    arguments: Vec<OsString>,
}

/// Renders a kustomization with kustomize, or with kubectl if kustomize is not installed.
pub async fn kustomize(folder: &Path, printer: Printer) -> Result<Vec<u8>> {
    let kustomize = Invocation { program: "kustomize", arguments: vec!["build".into(), folder.into()] };
    let kubectl = Invocation { program: "kubectl", arguments: vec!["kustomize".into(), folder.into()] };
    match run(kustomize, printer).await? {
        Some(bytes) => Ok(bytes),
        None => run(kubectl, printer).await?.ok_or_else(|| {
            missing("neither kustomize nor kubectl is installed")
                .next("install kustomize, or render the manifests yourself and use -f")
        }),
    }
}

/// Renders a chart with its hooks: agents run those of install and upgrade.
pub async fn helm(chart: &str, content: &Content, release: &str, printer: Printer) -> Result<Vec<u8>> {
    let bytes = run(template(chart, content, release), printer).await?;
    bytes.ok_or_else(|| {
        missing("helm is not installed").next("install helm, or render the manifests yourself and use -f")
    })
}

fn template(chart: &str, content: &Content, release: &str) -> Invocation {
    let mut arguments: Vec<OsString> =
        vec!["template".into(), release.into(), chart.into(), "--include-crds".into()];
    for file in &content.values {
        arguments.extend(["--values".into(), file.into()]);
    }
    for set in &content.set {
        arguments.extend(["--set".into(), set.into()]);
    }
    if let Some(namespace) = &content.namespace {
        arguments.extend(["--namespace".into(), namespace.into()]);
    }
    if let Some(version) = &content.chart_version {
        arguments.extend(["--version".into(), version.into()]);
    }
    Invocation { program: "helm", arguments }
}

fn missing(what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("cannot render: {what}"))
}

/// Returns none if the program is not installed.
async fn run(call: Invocation, printer: Printer) -> Result<Option<Vec<u8>>> {
    let Invocation { program, arguments } = call;
    let ran = program::run(program, arguments, None);
    match printer.with_spinner(&format!("rendering with {program}"), ran).await {
        Ok(ran) => {
            ran.stderr.lines().for_each(|line| printer.note(&format!("{program}: {line}")));
            Ok(Some(ran.stdout))
        }
        Err(ProgramError::Missing(_)) => Ok(None),
        Err(ProgramError::Failed(output)) => {
            let failure = Failure::new(Exit::Failed, format!("{program} failed; nothing was submitted"));
            Err(output.lines().map(ToOwned::to_owned).fold(failure, Failure::line))
        }
        Err(error) => Err(missing(&error.to_string())),
    }
}
