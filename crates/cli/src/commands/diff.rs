//! `brokkr diff`: the broker compares two versions; the newest version and local manifests are compared here.

use brokkr_api::SequenceId;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::{DeploymentObject, Diff, FieldDiff, ResourceChange, ResourceDiff};
use brokkr_client::{Client, PageQuery};
use brokkr_manifest::diff::{Change, Difference, diff};
use brokkr_manifest::{Budget, Object, redacted};

use crate::args;
use crate::commands::stack::nothing_submitted;
use crate::failure::{About as _, Exit, Failure, Noun, Outcome, Result, WhileTrying as _};
use crate::manifest;
use crate::printer::Printer;
use crate::view::diff::Compared;

pub async fn run(args: args::Diff, client: &Client, printer: Printer) -> Result<Outcome> {
    let compared = if !args.content.is_given() {
        versions(&args, client).await?
    } else {
        files(&args, client, printer).await?
    };
    printer.show(&compared)?;
    Ok(if compared.differs() { Outcome::Negative } else { Outcome::Success })
}

async fn versions(args: &args::Diff, client: &Client) -> Result<Compared> {
    let name = args.stack.as_str();
    let (from, to) = match (args.from, args.to) {
        (Some(from), Some(to)) => (from, to),
        (from, _) => {
            let newest = newest(args, client).await?;
            let before = newest.get(1).map(|version| version.sequence_id);
            let from = from.or(before).ok_or_else(|| {
                Failure::new(Exit::NotFound, format!("{name} has only one version"))
                    .next(format!("compare it with local manifests: brokkr diff {name} -f PATH"))
            })?;
            (from, newest[0].sequence_id)
        }
    };
    let diff = client
        .diff(name, from, to)
        .await
        .while_trying(&format!("compare {from} and {to} of the stack {name}"))
        .about(Noun::Stack, name)?;
    Ok(Compared { diff, file: None })
}

/// Returns the newest version and the previous one; at least one.
async fn newest(args: &args::Diff, client: &Client) -> Result<Vec<DeploymentObject>> {
    let name = args.stack.as_str();
    let page = PageQuery { limit: Some(2), after: None };
    let page = client
        .history(name, &page)
        .await
        .while_trying(&format!("read the history of the stack {name}"))
        .about(Noun::Stack, name)?;
    if page.items.is_empty() {
        return Err(nothing_submitted(name));
    }
    Ok(page.items)
}

async fn files(args: &args::Diff, client: &Client, printer: Printer) -> Result<Compared> {
    let mut after =
        objects(&manifest::read(&args.content, args.stack.as_str(), printer).await?, "the files")?;
    let newest = newest(args, client).await?.remove(0);
    let before = if newest.is_deletion_marker {
        Vec::new()
    } else {
        let action = format!("read {} of the stack {}", newest.sequence_id, args.stack);
        let content = client.deployment_object(newest.sequence_id).await.while_trying(&action)?;
        if Checksum::of(&content) != newest.checksum {
            // Tokens that cannot submit get no Secret values, so both sides are compared without them.
            printer.warn("your role cannot read Secret values; they are not compared");
            after.iter_mut().for_each(|object| object.body = redacted(&object.body));
        }
        objects(&content, "the newest version")?
    };
    let diff = to_api(newest.sequence_id, after.len(), diff(&before, &after));
    Ok(Compared { diff, file: Some(args.content.name()) })
}

fn objects(content: &[u8], what: &str) -> Result<Vec<Object>> {
    let read = brokkr_manifest::parse(content, &Budget::default());
    read.map(|manifest| manifest.objects)
        .map_err(|_| Failure::new(Exit::Failed, format!("{what} cannot be read")))
}

/// Converts to the broker's form.
fn to_api(from: SequenceId, after: usize, differences: Vec<Difference>) -> Diff {
    let count = |matches: fn(&Change) -> bool| differences.iter().filter(|one| matches(&one.change)).count();
    let added = count(|change| matches!(change, Change::Added));
    let removed = count(|change| matches!(change, Change::Removed));
    let changed = count(|change| matches!(change, Change::Changed(_)));
    let resources = differences.into_iter().map(|Difference { key, change }| {
        let (change, fields) = match change {
            Change::Added => (ResourceChange::Added, Vec::new()),
            Change::Removed => (ResourceChange::Removed, Vec::new()),
            Change::Changed(fields) => (ResourceChange::Changed, fields),
        };
        let fields = fields
            .into_iter()
            .map(|field| FieldDiff { path: field.path, before: field.before, after: field.after })
            .collect();
        ResourceDiff {
            group: key.group,
            kind: key.kind,
            namespace: key.namespace,
            name: key.name,
            change,
            fields,
        }
    });
    let resources = resources.collect();
    Diff {
        from,
        to: from,
        added,
        removed,
        changed,
        unchanged: after - added - changed,
        resources,
        truncated: false,
    }
}
