//! The stacks that target an agent.

use brokkr_api::agents::{Target, Why};

use super::status::sequence;
use super::table::{Table, plain, sentence, wide};
use super::{Listed, RenderOptions};

impl Listed for Target {
    const NONE: &'static str = "no stack targets this agent";

    fn table<'a>(targets: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let columns = [plain("STACK"), plain("SEQUENCE"), sentence("WHY"), wide("PROJECT"), wide("ID")];
        let mut table = Table::new(options, &columns);
        for target in targets {
            let why = match &target.why {
                Why::Explicit => "targets this agent by name".to_owned(),
                Why::Selector { selector } => format!("selector {selector} matches"),
            };
            table.row([
                target.stack_name.to_string().into(),
                sequence(target.sequence_id).into(),
                why.into(),
                target.project.clone().into(),
                target.stack_id.to_string().into(),
            ]);
        }
        table
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
