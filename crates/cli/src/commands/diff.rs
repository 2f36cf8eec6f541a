//! `brokkr diff`: two versions as the broker compares them, or the newest one with files, compared here.

use brokkr_api::SequenceId;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::{DeploymentObject, Diff, FieldDiff, ResourceChange, ResourceDiff};
use brokkr_client::{Client, PageQuery};
use brokkr_manifest::diff::{Change, Difference, diff};
use brokkr_manifest::{Budget, Object, redacted};

use crate::args::DiffVersions;
use crate::failure::{About as _, Answer, Exit, Failure, Noun, WhileTrying as _};
use crate::manifest;
use crate::printer::Printer;
use crate::view::diff::Compared;

pub async fn run(args: DiffVersions, client: &Client, printer: Printer) -> Result<Answer, Failure> {
    let compared = if !args.content.is_given() {
        versions(&args, client).await?
    } else {
        files(&args, client, printer).await?
    };
    printer.show(&compared)?;
    Ok(if compared.differs() { Answer::No } else { Answer::Yes })
}

async fn versions(args: &DiffVersions, client: &Client) -> Result<Compared, Failure> {
    let name = args.stack.as_str();
    let (from, to) = match (args.from, args.to) {
        (Some(from), Some(to)) => (from, to),
        (from, _) => {
            let newest = newest(args, client).await?;
            let before = newest.get(1).map(|version| version.sequence_id);
            let from = from.or(before).ok_or_else(|| {
                Failure::new(Exit::NotFound, format!("{name} has only one version"))
                    .next(format!("compare it with files: brokkr diff {name} -f PATH"))
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

/// The newest version and the one before it; one at least.
async fn newest(args: &DiffVersions, client: &Client) -> Result<Vec<DeploymentObject>, Failure> {
    let name = args.stack.as_str();
    let page = PageQuery { limit: Some(2), after: None };
    let page = client
        .history(name, &page)
        .await
        .while_trying(&format!("read the history of the stack {name}"))
        .about(Noun::Stack, name)?;
    if page.items.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("nothing was submitted to {name} yet"))
            .next(format!("brokkr apply -f PATH --stack {name}")));
    }
    Ok(page.items)
}

async fn files(args: &DiffVersions, client: &Client, printer: Printer) -> Result<Compared, Failure> {
    let mut after =
        objects(&manifest::read(&args.content, args.stack.as_str(), printer).await?, "the files")?;
    let newest = newest(args, client).await?.remove(0);
    let before = if newest.is_deletion_marker {
        Vec::new()
    } else {
        let action = format!("read {} of the stack {}", newest.sequence_id, args.stack);
        let content = client.deployment_object(newest.sequence_id).await.while_trying(&action)?;
        if Checksum::of(&content) != newest.checksum {
            // Whoever may not submit gets no values of Secrets, so they are left out on both sides.
            printer.warn("your token may not read values of Secrets: they are not compared");
            after.iter_mut().for_each(|object| object.body = redacted(&object.body));
        }
        objects(&content, "the newest version")?
    };
    let diff = shown(newest.sequence_id, after.len(), diff(&before, &after));
    Ok(Compared { diff, file: Some(args.content.name()) })
}

fn objects(content: &[u8], what: &str) -> Result<Vec<Object>, Failure> {
    let read = brokkr_manifest::parse(content, &Budget::default());
    read.map(|manifest| manifest.objects)
        .map_err(|_| Failure::new(Exit::Failed, format!("{what} cannot be read")))
}

/// In the form in which the broker tells it.
fn shown(from: SequenceId, after: usize, differences: Vec<Difference>) -> Diff {
    let count = |wanted: fn(&Change) -> bool| differences.iter().filter(|one| wanted(&one.change)).count();
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
