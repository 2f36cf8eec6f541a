//! What to do next, for each cause: a sentence, and a command that can be typed as it stands where one is enough.
//!
//! Commands are made here and not by agents: whoever has taken an agent over must not be able to put words into an
//! operator's shell. What comes out of a report is only used where it is a plain name.

use brokkr_api::grants::ProjectGrant;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::report::{ConditionKind, ConditionStatus};
use brokkr_api::why::{Broken, Cause, Hop};

use super::super::facts::AgentFacts;
use super::super::status::LastReport;
use super::cause::note_of;
use super::misses::labelling;
use super::{Case, condition};

/// The broken hop, with what to do about it.
pub(super) fn advised(case: &Case<'_>, hop: Hop, cause: Cause, message: impl Into<String>) -> Broken {
    let message = message.into();
    let (next, command) = advice(case, cause, &message);
    Broken { hop, cause, message, next, command }
}

fn advice(case: &Case<'_>, cause: Cause, message: &str) -> (String, Option<String>) {
    let (stack, agent) = (&case.stack.name, &case.agent.name);
    let back = case.past.earlier.then(|| brokkr(case, &format!("rollback {stack}")));
    let or_back = |text: &str| {
        let text = if back.is_some() {
            format!("{text}, or go back to the version before")
        } else {
            format!("{text}, and apply again")
        };
        (text, back.clone())
    };
    let only = |text: &str| (text.to_owned(), None);
    match cause {
        Cause::NothingSubmitted => (format!("submit manifests to it with brokkr apply --stack {stack}"), None),
        Cause::NotTargeted => (
            format!("correct the agent's labels, or say anew whom the stack is for: brokkr retarget {stack}"),
            labelling(case.agent, case.stack),
        ),
        Cause::NotGranted => only("an administrator widens the project's grant (docs/grants.md)"),
        Cause::OnHold => (
            "follow docs/restore.md; then say, where the broker's database can be reached, that this database is the one to \
             go on with"
                .to_owned(),
            Some("brokkr-broker epoch raise".to_owned()),
        ),
        Cause::AgentAhead => (
            "submit the newer version again, or publish the restored one".to_owned(),
            Some(brokkr(case, &format!("admin settle {stack} --publish-restored"))),
        ),
        Cause::UnknownKind => {
            only("bring the definition of that kind into the cluster, with this stack or another: the agent goes on by itself")
        }
        Cause::NamespaceMissing => namespace(case.report),
        Cause::Forbidden => (forbidden(case.report), None),
        Cause::ImmutableField => {
            or_back("rename the object, or let it be made anew with the annotation brokkr.io/replace: recreate")
        }
        Cause::QuotaExceeded => or_back("raise that quota, or let the stack ask for less"),
        Cause::RefusedByWebhook => or_back("correct what the webhook names"),
        Cause::OwnedByOther => only("remove it there first, or rename it here"),
        Cause::ImageNotPulled => or_back("correct the image, or let the cluster reach and read its registry"),
        Cause::CrashLoop => or_back("correct what the container ends with"),
        Cause::Unschedulable => or_back("give the cluster a node that fits, or let the Pod ask for less"),
        Cause::Contested => (contested(case.report), None),
        Cause::Finalizer => finalizer(case.report),
        Cause::Blocked => only("remove what blocks, as it is named"),
        Cause::AwaitsApproval => (
            "look at `brokkr diff`; if that is meant, approve it, else submit what should stay".to_owned(),
            number_after(message, "would delete ")
                .map(|number| brokkr(case, &format!("approve {stack} --expect {number} --agent {agent}"))),
        ),
        Cause::Failed => or_back("correct the manifest or what it needs"),
        Cause::Degraded => or_back("see what the objects say"),
        Cause::NotReady => only("see what the objects say, or wait for them"),
        Cause::NotReportedYet => only("wait; then look at the agent's log"),
        Cause::Removing => only("wait; what blocks is named as soon as it is known"),
        // These are about the agent itself, and have words of their own; or nothing is broken.
        Cause::AgentInactive
        | Cause::AgentNeverSeen
        | Cause::AgentSilent
        | Cause::AgentLate
        | Cause::AgentRefused
        | Cause::SessionTied
        | Cause::Deleted
        | Cause::Other => only(""),
    }
}

/// With the project, where it is not the one that is meant without.
fn brokkr(case: &Case<'_>, what: &str) -> String {
    match case.stack.project.as_str() {
        DEFAULT_PROJECT => format!("brokkr {what}"),
        project => format!("brokkr {what} --project {project}"),
    }
}

fn namespace(report: Option<&LastReport>) -> (String, Option<String>) {
    let missing = report
        .and_then(|report| note_of(report, "NamespaceNotFound"))
        .and_then(|note| Named::read(&note.object)?.namespace);
    match missing {
        Some(name) => (
            format!("make the namespace {name}, or let the stack bring it: the agent goes on by itself"),
            Some(format!("kubectl create namespace {name}")),
        ),
        None => {
            ("wait until the namespace is gone or there again: the agent goes on by itself".to_owned(), None)
        }
    }
}

/// `system:serviceaccount:shop:brokkr-shop` acts where a grant names it, else the agent's own role.
fn forbidden(report: Option<&LastReport>) -> String {
    let note = report.and_then(|report| note_of(report, "NoRight"));
    let message = note.map_or("", |note| note.message.as_str());
    let account =
        message.split_once("acting as system:serviceaccount:").and_then(|(_, rest)| rest.split(',').next());
    if let Some((namespace, name)) = account.and_then(|account| account.split_once(':')) {
        return format!(
            "give the account {namespace}/{name} that right in the cluster: the agent tries again by itself"
        );
    }
    let resource = note.and_then(|note| note.object.split(' ').next()).filter(|word| is_plain(word));
    match resource.filter(|resource| resource.contains('.')) {
        Some(resource) => format!(
            "give the agent that right: brokkr-agent install again, as before and with --kind {resource}; it tries again by \
             itself"
        ),
        None => "give the agent's role in the cluster that right: it tries again by itself".to_owned(),
    }
}

fn contested(report: Option<&LastReport>) -> String {
    let told = report.and_then(|report| condition(report, ConditionKind::Contested, ConditionStatus::True));
    let field = told
        .and_then(|told| told.message.split_once(" changes .")?.1.split([' ', ',']).next())
        .filter(|field| is_plain(field) && !field.starts_with("metadata."));
    let yielding = field.map_or_else(|| " (docs/annotations.md)".to_owned(), |field| format!(": {field}"));
    format!(
        "let one of the two have the field: stop the other, or leave it the field with the annotation \
         brokkr.io/yield{yielding}"
    )
}

fn finalizer(report: Option<&LastReport>) -> (String, Option<String>) {
    let held =
        report.and_then(|report| note_of(report, "Finalizer")).and_then(|note| Named::read(&note.object));
    let next =
        "let whoever set the finalizer do its work; only if that is gone for good, take the finalizer off";
    let command = held.map(|held| {
        let place = held.namespace.map(|namespace| format!("-n {namespace} ")).unwrap_or_default();
        let kind = held.kind.to_ascii_lowercase();
        let patch = r#"'{"metadata":{"finalizers":null}}'"#;
        format!("kubectl {place}patch {kind} {} --type=merge -p {patch}", held.name)
    });
    (next.to_owned(), command)
}

/// The grant that covers the agent, with what the agent says is lacking: only for whoever may read grants.
#[must_use]
pub fn widened_grant(broken: &Broken, agent: &AgentFacts, grants: &[ProjectGrant]) -> Option<String> {
    let lacking = |what: &str| {
        let word = broken.message.split_once(what)?.1.split([' ', ';']).next()?;
        is_plain(word).then(|| word.to_owned())
    };
    // Where several cover the agent, the oldest says as whom.
    let grant = grants.iter().filter(|grant| agent.matches(&grant.selector)).min_by_key(|grant| grant.id)?;
    let (mut namespaces, mut kinds) = (grant.namespaces.clone(), grant.kinds.clone());
    match (lacking("does not cover the namespace "), lacking("does not cover the kind ")) {
        (Some(namespace), _) => namespaces.push(namespace),
        (None, Some(kind)) => kinds.push(kind),
        (None, None) => return None,
    }
    let list = |flag: &str, words: &[String]| -> String {
        words.iter().map(|word| format!(" {flag} {}", quoted(word))).collect()
    };
    Some(format!(
        "brokkr grant set {} --to-project {} -l {}{}{} --account {}",
        grant.name,
        grant.project,
        quoted(&grant.selector.to_string()),
        list("--namespace", &namespaces),
        list("--kind", &kinds),
        quoted(&grant.account),
    ))
}

/// An object as reports name it: `Deployment shop/web`, `Namespace shop`.
struct Named<'a> {
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> Named<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (kind, place) = text.split_once(' ')?;
        let (namespace, name) =
            place.split_once('/').map_or((None, place), |(namespace, name)| (Some(namespace), name));
        let words = [Some(kind), namespace, Some(name)];
        words.iter().flatten().all(|word| is_plain(word)).then_some(Self { kind, namespace, name })
    }
}

/// What no shell reads as anything else.
fn is_plain(word: &str) -> bool {
    let inner = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.');
    (1..=253).contains(&word.len()) && !word.starts_with('-') && word.chars().all(inner)
}

fn quoted(word: &str) -> String {
    let plain = |character: char| {
        character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '/' | '=' | ',' | '_')
    };
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn number_after(text: &str, words: &str) -> Option<u32> {
    let (_, rest) = text.split_once(words)?;
    rest.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}
