//! `brokkr stack …`, except `delete` and the commands that also exist at top level.

use brokkr_api::approvals::ApprovePrune;
use brokkr_api::objects::{self, BarredContent};
use brokkr_api::stacks::{DriftPolicy, PutStack, Stack, StackTargets};
use brokkr_api::{ErrorCode, Name};
use brokkr_client::{Client, PageQuery};

use crate::args::{
    Annotate, AnnotationChange, Approve, History, ListStacks, Manifest, Rerun, Retarget, SetDrift, Targeting,
    Unbar,
};
use crate::commands::apply::content_of;
use crate::commands::deliver::Delivery;
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::history::short_checksum;
use crate::view::text::count;
use crate::view::whole;

pub async fn list(args: ListStacks, client: &Client, printer: Printer) -> Result {
    let read = client.stacks_up_to(printer.rows(args.rows));
    let page = printer.with_spinner("reading the stacks", read).await.while_trying("list the stacks")?;
    printer.show(&page)?;
    if page.next.is_some() && printer.is_for_people() {
        printer.note_truncated(page.items.len(), client.stacks_counted().await.ok().flatten());
    }
    Ok(())
}

pub async fn show(stack: &Name, client: &Client, printer: Printer) -> Result {
    printer.show(&read(stack, client).await?)
}

pub async fn read(stack: &Name, client: &Client) -> Result<Stack> {
    client
        .stack(stack.as_str())
        .await
        .while_trying(&format!("read the stack {stack}"))
        .about(Noun::Stack, stack)
}

pub async fn history(args: History, client: &Client, printer: Printer) -> Result {
    let action = format!("read the history of the stack {}", args.stack);
    let read = client.history_up_to(args.stack.as_str(), printer.rows(args.rows));
    let page = printer.with_spinner("reading the history", read).await;
    let page = page.while_trying(&action).about(Noun::Stack, &args.stack)?;
    printer.show(&page)?;
    if page.next.is_some() {
        printer.note_truncated(page.items.len(), None);
    }
    Ok(())
}

pub async fn manifest(args: Manifest, client: &Client, printer: Printer) -> Result {
    let name = args.stack.as_str();
    let (action, page) = (format!("read the history of the stack {name}"), PageQuery::default());
    let versions = client.history(name, &page).await.while_trying(&action).about(Noun::Stack, name)?;
    let newest = versions.items.iter().find(|version| !version.is_deletion_marker);
    let sequence = match (args.sequence, newest) {
        (Some(sequence), _) => sequence,
        (None, Some(newest)) => newest.sequence_id,
        (None, None) => return Err(nothing_submitted(name)),
    };
    let content = client.deployment_object(sequence).await;
    printer.bytes(&content.while_trying(&format!("read version {sequence} of the stack {name}"))?)
}

pub async fn rerun(args: Rerun, client: &Client, printer: Printer) -> Result {
    let name = &args.stack;
    let wanted = objects::Rerun { job: args.job };
    let object = client
        .rerun(name.as_str(), &wanted)
        .await
        .while_trying(&format!("run Jobs of the stack {name} again"))
        .about(Noun::Stack, name)?;
    let jobs: Vec<String> =
        object.rerun.iter().map(|job| format!("{}/{}", job.namespace, job.name)).collect();
    let text = format!(
        "stack {name}: submitted as version {}, which runs again: {}",
        content_of(&object),
        jobs.join(", ")
    );
    Delivery { stack: name, object: &object, client, printer }.finish(&text, &args.waiting).await
}

pub async fn annotate(args: Annotate, client: &Client, printer: Printer) -> Result {
    let name = &args.stack;
    let action = format!("change the annotations of the stack {name}");
    // Before its first version, the stack does not exist.
    let mut annotations = match client.stack(name.as_str()).await {
        Ok(stack) => stack.annotations,
        Err(error)
            if error.code() == Some(ErrorCode::BRK2001)
                && args.changes.iter().any(AnnotationChange::sets) =>
        {
            Default::default()
        }
        Err(error) => return Err(Failure::of_client(&action, error)),
    };
    for change in args.changes {
        match change {
            AnnotationChange::Set(key, value) => {
                annotations.insert(key, value);
            }
            AnnotationChange::Remove(key) => {
                annotations.remove(&key);
            }
        }
    }
    let put = PutStack { annotations: Some(annotations), ..PutStack::default() };
    let stack = client.put_stack(name.as_str(), &put).await.while_trying(&action)?;
    printer.done(&stack, format!("stack/{name}"), || {
        let pairs = stack.annotations.iter().map(|(key, value)| format!("{key}={value}"));
        match pairs.collect::<Vec<_>>().join(",") {
            none if none.is_empty() => format!("stack {name} has no annotations"),
            pairs => format!("stack {name} has the annotations {pairs}"),
        }
    })
}

pub fn nothing_submitted(stack: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("the stack {stack} has no version yet"))
        .next(format!("brokkr apply {stack} -f PATH"))
}

pub async fn set_drift(args: SetDrift, client: &Client, printer: Printer) -> Result {
    let name = &args.stack;
    let drift: DriftPolicy =
        args.policy.parse().map_err(|_| Failure::new(Exit::Usage, "drift is repaired or reported"))?;
    let change = PutStack { drift: Some(drift), ..PutStack::default() };
    // Creates no stack by mistake.
    read(name, client).await?;
    let stack = client.put_stack(name.as_str(), &change).await;
    let stack = stack.while_trying(&format!("change the stack {name}")).about(Noun::Stack, name)?;
    printer.done(&stack, format!("stack/{name}"), || match drift {
        DriftPolicy::Repair => format!("agents repair drift of stack {name}"),
        DriftPolicy::Report => format!("agents report drift of stack {name}, and do not repair it"),
    })
}

pub async fn retarget(args: Retarget, client: &Client, printer: Printer) -> Result {
    let name = &args.stack;
    let stack = read(name, client).await?;
    let stack = put_targets(name, &args.targeting, stack, client, printer).await?;
    printer.done(&stack, format!("stack/{name}"), || {
        format!("stack {name} targets {}", view::stacks::targets(&stack.targets))
    })
}

/// Sets the targets if any are given, and warns first if agents may lose the stack.
pub async fn put_targets(
    name: &Name,
    targeting: &Targeting,
    stack: Stack,
    client: &Client,
    printer: Printer,
) -> Result<Stack> {
    if targeting.to.is_empty() && targeting.to_agent.is_empty() {
        return Ok(stack);
    }
    let agents = targeting.to_agent.iter().map(ToString::to_string).collect();
    let targets = StackTargets { agents, selectors: targeting.to.clone() };
    let removes_targets = stack.targets.selectors.iter().any(|old| !targets.selectors.contains(old))
        || stack.targets.agents.iter().any(|old| !targets.agents.contains(old));
    if removes_targets {
        let (before, after) = (view::stacks::targets(&stack.targets), view::stacks::targets(&targets));
        printer.warn(&format!(
            "the targets of {name} change from {before} to {after}; agents that are no longer targeted remove the stack"
        ));
    }
    client
        .put_stack_targets_expecting(name.as_str(), &targets, targeting.expect)
        .await
        .while_trying(&format!("set the targets of the stack {name}"))
}

pub async fn approve(args: Approve, client: &Client, printer: Printer) -> Result {
    let name = args.stack.as_str();
    let action = format!("approve the prune of the stack {name}");
    let stack = client.stack(name).await.while_trying(&action).about(Noun::Stack, name)?;
    if args.list {
        let page = client.prune_approvals(name, &PageQuery::largest()).await;
        return printer.show(&page.while_trying(&format!("list the approvals of the stack {name}"))?);
    }
    let Some(objects) = args.expect else { return Err(pending_prunes(&args, client).await?) };
    let sequence_id = args.sequence.or(stack.sequence_id).ok_or_else(|| nothing_submitted(name))?;
    let request = ApprovePrune { sequence_id, objects, agent: args.agent.as_ref().map(ToString::to_string) };
    let approval = client.approve_prune(&stack.id.to_string(), &request).await.while_trying(&action);
    let approval = match &args.agent {
        Some(agent) => approval.about(Noun::Agent, agent)?,
        None => approval?,
    };
    printer.done(&approval, format!("stack/{name}"), || {
        let agents =
            args.agent.as_ref().map_or_else(|| "every agent".to_owned(), |agent| format!("agent {agent}"));
        format!(
            "stack {name}: {sequence_id} may delete up to {} on {agents}",
            count(objects as usize, "object")
        )
    })
}

/// Lists the pending prunes. Approving requires the number, so that nothing is approved by accident.
async fn pending_prunes(args: &Approve, client: &Client) -> Result<Failure> {
    let name = &args.stack;
    let rows = client
        .stack_status_all(name.as_str())
        .await
        .while_trying(&format!("read the pending prunes of the stack {name}"))?;
    let pending = view::approvals::pending(&rows);
    let failure = if pending.is_empty() {
        Failure::new(Exit::NotFound, format!("no prune of {name} is pending"))
            .next(format!("brokkr status {name}"))
    } else {
        let what = format!("a prune of {name} is pending on {}", count(pending.len(), "agent"));
        Failure::new(Exit::Conflict, what).next(format!(
            "check `brokkr diff {name}`; to approve, run `brokkr stack approve {name} --expect NUMBER` with the largest number"
        ))
    };
    Ok(pending.into_iter().fold(failure, Failure::line))
}

pub async fn barred(stack: &Name, client: &Client, printer: Printer) -> Result {
    printer.show(&whole(bars(stack.as_str(), client).await?))
}

async fn bars(stack: &str, client: &Client) -> Result<Vec<BarredContent>> {
    client
        .barred_contents_all(stack)
        .await
        .while_trying(&format!("list the barred content of the stack {stack}"))
        .about(Noun::Stack, stack)
}

pub async fn unbar(args: Unbar, client: &Client, printer: Printer) -> Result {
    let (stack, content) = (args.stack.as_str(), args.content.trim());
    let bars = bars(stack, client).await?;
    let bar =
        find_bar(&bars, content).map_err(|failure| failure.next(format!("brokkr stack barred {stack}")))?;
    client
        .lift_bar(stack, bar.checksum)
        .await
        .while_trying(&format!("unbar {}", short_checksum(bar.checksum)))?;
    printer.done(bar, format!("bar/{}", bar.checksum), || {
        format!(
            "stack {stack}: the content of {} (sha256 {}) can be submitted again",
            bar.sequence_id,
            short_checksum(bar.checksum)
        )
    })
}

/// Finds a bar by the sequence id that was rolled back, or by a prefix of the checksum.
fn find_bar<'a>(bars: &'a [BarredContent], content: &str) -> Result<&'a BarredContent> {
    if let Some(bar) = bars.iter().find(|bar| bar.sequence_id.to_string() == content) {
        return Ok(bar);
    }
    let digits = content.strip_prefix("bar/").unwrap_or(content).to_lowercase();
    let found: Vec<_> = bars.iter().filter(|bar| bar.checksum.to_string().starts_with(&digits)).collect();
    match found.as_slice() {
        [bar] if digits.len() >= 6 => Ok(bar),
        [_] => Err(Failure::new(Exit::Usage, format!("{content} is too short; use at least 6 digits"))),
        [] => Err(Failure::new(Exit::NotFound, format!("no barred content matches {content}"))),
        several => Err(Failure::new(
            Exit::Conflict,
            format!("{content} matches the barred content of {} versions", several.len()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::bar;

    #[test]
    fn a_bar_is_found_by_its_version_and_by_enough_of_its_checksum() {
        let bars = [bar(41), bar(42)];
        assert_eq!(find_bar(&bars, "42").unwrap().sequence_id.0, 42);
        let digits = bars[0].checksum.to_string();
        assert_eq!(find_bar(&bars, &digits[..8].to_uppercase()).unwrap().sequence_id.0, 41);
        assert_eq!(find_bar(&bars, &format!("bar/{digits}")).unwrap().sequence_id.0, 41);
        assert_eq!(find_bar(&bars, &digits[..3]).unwrap_err().exit, Exit::Usage);
        assert_eq!(find_bar(&bars, "43").unwrap_err().exit, Exit::NotFound);
        assert_eq!(find_bar(&bars, "").unwrap_err().exit, Exit::Conflict);
    }
}
