//! Events, newest last.

use anstyle::Style;
use brokkr_api::events::Event;
use brokkr_api::report::Transition;

use super::Listed;
use super::table::{BAD, CAREFUL, FAINT, GOOD, Table, UNDER_WAY, painted};
use super::text::{age, explained};

impl Listed for Event {
    const NONE: &'static str = "no events";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .sorted_by_key(|event| event.at)
            .plain("AGE", |event| age(event.at, now))
            .wide("TIME", |event| format!("{:.0}", event.at))
            .plain("AGENT", |event| &event.agent_name)
            .plain("STACK", |event| &event.stack_name)
            .plain("SEQUENCE", |event| event.sequence_id)
            .plain("EVENT", |event| painted(&event.transition, style(&event.transition)))
            .sentence("MESSAGE", message)
    }

    fn name(&self) -> String {
        format!("event/{}", self.id)
    }
}

fn style(transition: &Transition) -> Style {
    match transition {
        Transition::Healthy => GOOD,
        Transition::Failed => BAD,
        Transition::Degraded | Transition::Blocked | Transition::Drifted | Transition::Suspended => CAREFUL,
        Transition::Applied | Transition::Repaired | Transition::Resumed => UNDER_WAY,
        Transition::Removed => FAINT,
        Transition::Other(_) => Style::new(),
    }
}

fn message(event: &Event) -> String {
    let mut text = explained(&event.reason, &event.message);
    // The first object is shown unless the text already contains it.
    if let Some(note) = event.objects.first().filter(|note| !text.contains(&note.object.to_string())) {
        let more = event.objects.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let separator = if text.is_empty() { "" } else { ": " };
        text.push_str(&format!("{separator}{}: {}{more}", note.object, note.message));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples::{AGENT, event, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn events() {
        let mut events = vec![event(Transition::Failed, 30), event(Transition::Applied, 3700)];
        for event in &mut events {
            event.id = AGENT.parse().unwrap();
        }
        insta::assert_snapshot!(rendered(&whole(events)));
    }
}
