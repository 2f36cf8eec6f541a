//! `brokkr rollout policy` and `brokkr rollout set-policy`

use brokkr_api::Name;
use brokkr_api::rollouts::RolloutPolicy;
use brokkr_client::Client;
use brokkr_client::rollouts::PolicyScope;

use crate::args::SetRolloutPolicy;
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;

pub async fn show(stack: Option<&Name>, client: &Client, printer: Printer) -> Result {
    let policies = client.rollout_policies(stack.map(Name::as_str)).await;
    let policies = policies.while_trying("read the rollout policy");
    printer.show(&match stack {
        Some(stack) => policies.about(Noun::Stack, stack.as_str())?,
        None => policies?,
    })
}

pub async fn set(args: SetRolloutPolicy, client: &Client, printer: Printer) -> Result {
    let policy = read(&args)?;
    let (scope, of) = match (args.stack, args.installation) {
        (Some(stack), _) => (PolicyScope::Stack(stack.to_string()), format!("stack {stack}")),
        (None, true) => (PolicyScope::Installation, "installation".to_owned()),
        (None, false) => {
            let project = client.whoami().await.while_trying("read the project of the token")?.project;
            (PolicyScope::Project(project.clone()), format!("project {project}"))
        }
    };
    let stored = client.put_rollout_policy(&scope, &policy).await;
    let stored = stored.while_trying(&format!("set the rollout policy of the {of}"))?;
    printer.done(&stored, "rollout-policy".to_owned(), || format!("the rollout policy of the {of} is set"))
}

#[expect(clippy::disallowed_methods, reason = "a policy is no manifest: it has no modes of files")]
fn read(args: &SetRolloutPolicy) -> Result<RolloutPolicy> {
    let file = args.file.display();
    let bad = |what: String| Failure::new(Exit::Usage, what).next("see docs/how-to/roll-out-in-waves.md");
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Failure::new(Exit::Usage, format!("failed to read {file}: {error}")))?;
    let policy: RolloutPolicy = serde_saphyr::from_str(&text)
        .map_err(|error| bad(format!("{file} is not a rollout policy: {error}")))?;
    policy.check().map_err(|error| bad(format!("{file}: {error}")))?;
    Ok(policy)
}
