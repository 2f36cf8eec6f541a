//! `brokkr health rules …`

use brokkr_api::Name;
use brokkr_api::health_rules::HealthRules;
use brokkr_client::Client;

use super::health;
use crate::args::{HealthRulesCommand, HealthRulesScope};
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::count;

pub async fn run(args: HealthRulesCommand, client: &Client, printer: Printer) -> Result {
    match args {
        HealthRulesCommand::Show(scope) => {
            let stack = scope.stack.as_ref();
            let rules = client.health_rules(stack.map(Name::as_str)).await;
            let rules = rules.while_trying(&format!("read the health rules of {}", of(stack)));
            printer.show(&about(rules, stack)?)
        }
        HealthRulesCommand::Set(args) => {
            let rules = HealthRules { rules: health::rules(&args.file)? };
            rules.check().map_err(|error| Failure::new(Exit::Usage, error))?;
            put(&args.scope, &rules, client, printer).await
        }
        HealthRulesCommand::Delete(scope) => put(&scope, &HealthRules::default(), client, printer).await,
    }
}

async fn put(scope: &HealthRulesScope, rules: &HealthRules, client: &Client, printer: Printer) -> Result {
    let stack = scope.stack.as_ref();
    let stored = client.put_health_rules(stack.map(Name::as_str), rules).await;
    let stored = stored.while_trying(&format!("change the health rules of {}", of(stack)));
    let stored = about(stored, stack)?;
    printer.done(&stored, "health-rules".to_owned(), || match stored.rules.len() {
        0 => format!("{} has no health rules", of(stack)),
        number => format!("{} has {}", of(stack), count(number, "health rule")),
    })
}

fn about(rules: Result<HealthRules>, stack: Option<&Name>) -> Result<HealthRules> {
    match stack {
        Some(stack) => rules.about(Noun::Stack, stack.as_str()),
        None => rules,
    }
}

fn of(stack: Option<&Name>) -> String {
    stack.map_or_else(|| "the installation".to_owned(), |stack| format!("stack {stack}"))
}
