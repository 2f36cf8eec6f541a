//! Events, newest last.

use brokkr_api::events::Event;
use brokkr_api::report::Transition;

use super::table::{BAD, CAREFUL, FAINT, GOOD, Table, UNDER_WAY, painted, plain, sentence, wide};
use super::text::{age, explained};
use super::{Listed, RenderOptions};

impl Listed for Event {
    const NONE: &'static str = "no events";

    fn table<'a>(events: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let mut events: Vec<&Event> = events.iter().collect();
        events.sort_by_key(|event| event.at);
        let columns = [
            plain("AGE"),
            wide("TIME"),
            plain("AGENT"),
            plain("STACK"),
            plain("SEQUENCE"),
            plain("EVENT"),
            sentence("MESSAGE"),
        ];
        let mut table = Table::new(options, &columns);
        for event in events {
            let style = match &event.transition {
                Transition::Healthy => GOOD,
                Transition::Failed => BAD,
                Transition::Degraded | Transition::Blocked => CAREFUL,
                Transition::Applied | Transition::Repaired => UNDER_WAY,
                Transition::Removed => FAINT,
                Transition::Other(_) => anstyle::Style::new(),
            };
            table.row([
                age(event.at, options.now).into(),
                format!("{:.0}", event.at).into(),
                event.agent_name.clone().into(),
                event.stack_name.clone().into(),
                event.sequence_id.to_string().into(),
                painted(event.transition.to_string(), style),
                message(event).into(),
            ]);
        }
        table
    }

    fn name(&self) -> String {
        format!("event/{}", self.id)
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
