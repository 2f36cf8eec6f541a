//! The stacks that target an agent.

use brokkr_api::agents::{Target, Why};

use super::Listed;
use super::table::Table;
use super::text::or_dash;

impl Listed for Target {
    const NONE: &'static str = "no stack targets this agent";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        table
            .plain("STACK", |target| &target.stack_name)
            .plain("SEQUENCE", |target| or_dash(target.sequence_id))
            .sentence("WHY", |target| match &target.why {
                Why::Explicit => "targets this agent by name".to_owned(),
                Why::Selector { selector } => format!("selector {selector} matches"),
            })
            .wide("PROJECT", |target| &target.project)
            .wide("ID", |target| target.stack_id)
    }

    fn name(&self) -> String {
        format!("stack/{}", self.stack_name)
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;

    use super::super::samples::{STACK, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn targets() {
        let target = |why| Target {
            project: "default".to_owned(),
            stack_id: STACK.parse().unwrap(),
            stack_name: "web".parse().unwrap(),
            sequence_id: Some(SequenceId(42)),
            why,
        };
        let selector = Why::Selector { selector: "env=prod,!canary".parse().unwrap() };
        insta::assert_snapshot!(rendered(&whole(vec![target(Why::Explicit), target(selector)])));
    }
}
