//! Current errors, grouped.

use brokkr_api::status::{ErrorExample, ErrorGroup};

use super::Listed;
use super::table::{BAD, Table, painted};
use super::text::or_dash;

impl Listed for ErrorGroup {
    const NONE: &'static str = "no errors reported";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        table
            .plain("COUNT", |group| group.count)
            .plain("REASON", |group| painted(group.reason.code(), BAD))
            .plain("STACKS", |group| group.stacks)
            .plain("SEQUENCE", |group| group.sequence_id)
            .sentence("EXAMPLE", |group| or_dash(group.examples.first().map(stack_and_agent)))
            .sentence("MESSAGE", |group| &group.message)
            .wide("EXAMPLE-MESSAGE", |group| {
                group.examples.first().map(|example| example.message.to_string()).unwrap_or_default()
            })
    }

    fn name(&self) -> String {
        self.examples.first().map_or_else(
            || format!("error/{}", self.reason.code()),
            |example| format!("agent/{}", example.agent_name),
        )
    }
}

fn stack_and_agent(example: &ErrorExample) -> String {
    format!("{} on {}", example.stack_name, example.agent_name)
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;
    use brokkr_api::reason::Reason;

    use super::super::samples::{AGENT, STACK, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn errors() {
        let example = ErrorExample {
            stack_id: STACK.parse().unwrap(),
            stack_name: "web".into(),
            agent_id: AGENT.parse().unwrap(),
            agent_name: "store-0412".into(),
            sequence_id: SequenceId(42),
            message: "Deployment shop/web: spec.selector: field is immutable".into(),
            objects: Vec::new(),
        };
        let group = ErrorGroup {
            reason: Reason::Immutable { fields: Vec::new() },
            message: "Deployment …: spec.selector: field is immutable".into(),
            count: 37,
            stacks: 2,
            sequence_id: SequenceId(42),
            examples: vec![example],
        };
        insta::assert_snapshot!(rendered(&whole(vec![group])));
    }
}
