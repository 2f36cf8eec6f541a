//! Current errors, grouped.

use brokkr_api::status::ErrorGroup;

use super::table::{BAD, Table, painted, plain, sentence, wide};
use super::text::or_dash;
use super::{Listed, RenderOptions};

impl Listed for ErrorGroup {
    const NONE: &'static str = "no errors reported";

    fn table<'a>(groups: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let columns = [
            plain("COUNT"),
            plain("REASON"),
            plain("STACKS"),
            plain("SEQUENCE"),
            sentence("EXAMPLE"),
            sentence("MESSAGE"),
            wide("EXAMPLE-MESSAGE"),
        ];
        let mut table = Table::new(options, &columns);
        for group in groups {
            let example = group.examples.first();
            let place = example.map(|example| format!("{} on {}", example.stack_name, example.agent_name));
            table.row([
                group.count.to_string().into(),
                painted(group.reason.code(), BAD),
                group.stacks.to_string().into(),
                group.sequence_id.to_string().into(),
                or_dash(place).into(),
                group.message.to_string().into(),
                example.map(|example| example.message.to_string()).unwrap_or_default().into(),
            ]);
        }
        table
    }

    fn name(&self) -> String {
        self.examples.first().map_or_else(
            || format!("error/{}", self.reason.code()),
            |example| format!("agent/{}", example.agent_name),
        )
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;
    use brokkr_api::reason::Reason;
    use brokkr_api::status::ErrorExample;

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
