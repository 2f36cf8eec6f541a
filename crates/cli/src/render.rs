//! Manifests that the user's own kustomize and helm make: they know the user's plugins, repositories and logins.

use std::ffi::OsString;
use std::path::Path;

use crate::args::Content;
use crate::failure::{Exit, Failure};
use crate::printer::Printer;
use crate::program::{self, Refused};

/// A program and its arguments.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    program: &'static str,
    arguments: Vec<OsString>,
}

/// What a kustomization becomes.
pub async fn kustomize(folder: &Path, printer: Printer) -> Result<Vec<u8>, Failure> {
    let own = Call { program: "kustomize", arguments: vec!["build".into(), folder.into()] };
    let kubectls = Call { program: "kubectl", arguments: vec!["kustomize".into(), folder.into()] };
    match run(own, printer).await? {
        Some(bytes) => Ok(bytes),
        None => run(kubectls, printer).await?.ok_or_else(|| {
            missing("neither kustomize nor kubectl is here")
                .next("install kustomize, or render it yourself and use -f")
        }),
    }
}

/// What a chart becomes. Hooks are left out: there is no moment at which they would run.
pub async fn helm(
    chart: &str,
    content: &Content,
    release: &str,
    printer: Printer,
) -> Result<Vec<u8>, Failure> {
    let bytes = run(template(chart, content, release), printer).await?;
    bytes.ok_or_else(|| missing("helm is not here").next("install helm, or render it yourself and use -f"))
}

fn template(chart: &str, content: &Content, release: &str) -> Call {
    let mut arguments: Vec<OsString> =
        vec!["template".into(), release.into(), chart.into(), "--no-hooks".into(), "--include-crds".into()];
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
    Call { program: "helm", arguments }
}

fn missing(what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("cannot render: {what}"))
}

/// None if there is no such program.
async fn run(call: Call, printer: Printer) -> Result<Option<Vec<u8>>, Failure> {
    let Call { program, arguments } = call;
    let ran = program::run(program, arguments, None);
    match printer.patiently(&format!("{program} renders"), ran).await {
        Ok(ran) => {
            ran.stderr.lines().for_each(|line| printer.note(&format!("{program}: {line}")));
            Ok(Some(ran.stdout))
        }
        Err(Refused::Missing(_)) => Ok(None),
        Err(Refused::Failed(told)) => {
            let failure = Failure::new(Exit::Failed, format!("{program} failed; nothing was submitted"));
            Err(told.lines().map(ToOwned::to_owned).fold(failure, Failure::line))
        }
        Err(unusable) => Err(missing(&unusable.to_string())),
    }
}
