//! `brokkr retarget STACK`, and how `apply` sets targets.

use brokkr_api::Name;
use brokkr_api::stacks::{Stack, StackTargets};
use brokkr_client::Client;

use crate::args::{Retarget, Targeting};
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view;

pub async fn run(args: Retarget, client: &Client, printer: Printer) -> Result<(), Failure> {
    let (name, action) = (&args.stack, format!("read the stack {}", args.stack));
    let stack = client.stack(name.as_str()).await.while_trying(&action).about(Noun::Stack, name)?;
    let stack = put_targets(name, &args.targeting, stack, client, printer).await?;
    printer.done(&stack, format!("stack/{name}"), || {
        format!("stack {name} targets {}", view::stacks::targets(&stack.targets))
    })
}

/// Sets the targets if some are given. What takes the stack from somebody is said before.
pub async fn put_targets(
    name: &Name,
    wanted: &Targeting,
    stack: Stack,
    client: &Client,
    printer: Printer,
) -> Result<Stack, Failure> {
    if wanted.to.is_empty() && wanted.to_agent.is_empty() {
        return Ok(stack);
    }
    let agents = wanted.to_agent.iter().map(ToString::to_string).collect();
    let targets = StackTargets { agents, selectors: wanted.to.clone() };
    let takes_away = stack.targets.selectors.iter().any(|old| !targets.selectors.contains(old))
        || stack.targets.agents.iter().any(|old| !targets.agents.contains(old));
    if takes_away {
        let (before, after) = (view::stacks::targets(&stack.targets), view::stacks::targets(&targets));
        printer.warn(&format!(
            "the targets of {name} change from {before} to {after}: agents that lose it remove it"
        ));
    }
    client
        .put_stack_targets_expecting(name.as_str(), &targets, wanted.expect)
        .await
        .while_trying(&format!("set the targets of the stack {name}"))
}
