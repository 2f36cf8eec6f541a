//! The agents that a selector matches.

use brokkr_api::selector::SelectorPreview;

use super::text::count;
use super::{RenderOptions, Show};

impl Show for SelectorPreview {
    fn text(&self, _: &RenderOptions) -> String {
        let number = |agents: u64| usize::try_from(agents).unwrap_or(usize::MAX);
        let mut lines = vec![count(number(self.agents), "agent")];
        if let Some(stack) = &self.stack {
            lines.push(format!("{} gained, {} kept, {} lost", stack.gained, stack.kept, stack.lost));
        }
        let names = &self.page.items;
        lines.extend(names.iter().map(|agent| format!("  {}", agent.name)));
        let more = number(self.agents).saturating_sub(names.len());
        if more > 0 {
            lines.push(format!("  … and {more} more"));
        }
        lines.join("\n")
    }

    fn names(&self) -> Vec<String> {
        self.page.items.iter().map(|agent| format!("agent/{}", agent.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::selector::{SelectedAgent, StackPreview};

    use super::super::samples::{AGENT, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn preview() {
        let agent = |name: &str| SelectedAgent { id: AGENT.parse().unwrap(), name: name.parse().unwrap() };
        let preview = SelectorPreview {
            agents: 1204,
            stack: Some(StackPreview { gained: 4, kept: 1200, lost: 53 }),
            page: whole(vec![agent("eu-1"), agent("eu-2")]),
        };
        let none = SelectorPreview { agents: 0, stack: None, page: whole(Vec::new()) };
        insta::assert_snapshot!(format!("{}\n\n{}", rendered(&preview), rendered(&none)));
    }
}
