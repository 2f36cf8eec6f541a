//! Manifests that the user's own kustomize and helm make: they know the user's plugins, repositories and logins.

use std::ffi::OsString;
use std::path::Path;

use tokio::process::Command;

use crate::args::Content;
use crate::failure::{Exit, Failure};
use crate::printer::Printer;

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
    match run(&own, printer).await? {
        Some(bytes) => Ok(bytes),
        None => run(&kubectls, printer).await?.ok_or_else(|| {
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
    let bytes = run(&template(chart, content, release), printer).await?;
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
async fn run(call: &Call, printer: Printer) -> Result<Option<Vec<u8>>, Failure> {
    let mut command = Command::new(call.program);
    // Plugins are other people's programs: the broker's token is none of their business.
    command
        .args(&call.arguments)
        .env_remove("BROKKR_TOKEN")
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = printer.patiently(&format!("{} renders", call.program), command.output()).await;
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(missing(&format!("{} cannot be started: {error}", call.program))),
    };
    let told = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        told.lines().for_each(|line| printer.note(&format!("{}: {line}", call.program)));
        return Ok(Some(output.stdout));
    }
    let failure = Failure::new(Exit::Failed, format!("{} failed; nothing was submitted", call.program));
    Err(told.lines().map(ToOwned::to_owned).fold(failure, Failure::line))
}
