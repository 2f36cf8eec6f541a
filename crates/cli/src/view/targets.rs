//! What targets an agent, and why.

use brokkr_api::agents::{Target, Why};

use super::status::sequence;
use super::table::Table;

pub fn list(targets: &[Target]) -> String {
    if targets.is_empty() {
        return "no stack targets this agent".to_owned();
    }
    let mut table = Table::new(&["STACK", "SEQUENCE", "WHY"]);
    for target in targets {
        let why = match &target.why {
            Why::Explicit => "the stack names this agent".to_owned(),
            Why::Selector { selector } => format!("its labels match {selector}"),
        };
        table.row([target.stack_name.to_string(), sequence(target.sequence_id), why]);
    }
    table.print()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brokkr_api::{SequenceId, StackId};

    #[test]
    fn targets() {
        let target = |why| Target {
            project: "default".to_owned(),
            stack_id: StackId::generate(),
            stack_name: "web".parse().unwrap(),
            sequence_id: Some(SequenceId(42)),
            why,
        };
        let selector = Why::Selector { selector: "env=prod,!canary".parse().unwrap() };
        insta::assert_snapshot!(list(&[target(Why::Explicit), target(selector)]));
    }
}
