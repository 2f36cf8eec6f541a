//! Events, the newest last, as one reads a log.

use brokkr_api::events::Event;
use jiff::Timestamp;

use super::table::Table;
use super::text::{age, short};

pub fn list(events: &[Event], now: Timestamp) -> String {
    if events.is_empty() {
        return "no events".to_owned();
    }
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| event.at);
    let mut table = Table::new(&["AGE", "AGENT", "STACK", "SEQUENCE", "EVENT", "MESSAGE"]);
    for event in events {
        table.row([
            age(event.at, now),
            event.agent_name.clone(),
            event.stack_name.clone(),
            event.sequence_id.to_string(),
            event.transition.to_string(),
            short(&message(event), 100),
        ]);
    }
    table.print()
}

fn message(event: &Event) -> String {
    let mut parts: Vec<String> =
        [&event.reason, &event.message].into_iter().filter(|text| !text.is_empty()).cloned().collect();
    // The agent's own sentence usually names the first object already.
    if let Some(note) = event.objects.first().filter(|note| !event.message.contains(&note.object)) {
        let more = event.objects.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        parts.push(format!("{}: {}{more}", note.object, note.message));
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::super::samples::{event, now};
    use super::*;
    use brokkr_api::report::Transition;

    #[test]
    fn events() {
        insta::assert_snapshot!(list(
            &[event(Transition::Failed, 30), event(Transition::Applied, 3700)],
            now()
        ));
    }
}
