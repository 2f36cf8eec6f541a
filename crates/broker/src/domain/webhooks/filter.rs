//! Whether a webhook subscribes to a message.

use brokkr_api::webhooks::{FILTER_NAMES, WebhookEvent, WebhookFilter};

use super::happening::Happening;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    #[error(
        "a filter can name at most {FILTER_NAMES} stacks and {FILTER_NAMES} agents; use `agent_selector`, or omit the list"
    )]
    TooMany,
    #[error("pings are sent only by the test route")]
    Ping,
}

/// Checks a filter before it is stored.
pub fn check(filter: &WebhookFilter) -> Result<(), BadFilter> {
    if filter.stacks.len().max(filter.agents.len()).max(filter.events.len()) > FILTER_NAMES {
        return Err(BadFilter::TooMany);
    }
    if filter.events.contains(&WebhookEvent::Ping) { Err(BadFilter::Ping) } else { Ok(()) }
}

#[must_use]
pub fn wants(filter: &WebhookFilter, happening: &Happening) -> bool {
    let event = if filter.events.is_empty() {
        !is_passing(happening.event)
    } else {
        filter.events.contains(&happening.event)
    };
    let (stack, agent) = (happening.stack.as_ref(), happening.agent.as_ref());
    event
        && (filter.stacks.is_empty()
            || stack.is_some_and(|stack| names(&filter.stacks, &stack.name, &stack.id.to_string())))
        && (filter.agents.is_empty()
            || agent.is_some_and(|agent| names(&filter.agents, &agent.name, &agent.id.to_string())))
        && filter
            .agent_selector
            .as_ref()
            .is_none_or(|selector| agent.is_some_and(|agent| selector.matches(&agent.labels)))
}

fn names(list: &[String], name: &str, id: &str) -> bool {
    list.iter().any(|item| item == name || item == id)
}

/// Failures that may pass quickly. A webhook that does not name them is notified only when they last.
fn is_passing(event: WebhookEvent) -> bool {
    matches!(
        event,
        WebhookEvent::Failed | WebhookEvent::Degraded | WebhookEvent::Blocked | WebhookEvent::Repaired
    )
}

#[cfg(test)]
mod tests {
    use brokkr_api::{AgentId, Labels, SequenceId, StackId};
    use jiff::Timestamp;

    use super::super::happening::{NamedAgent, NamedStack};
    use super::*;

    fn happening(event: WebhookEvent) -> Happening {
        let stack = NamedStack { id: StackId::generate(), name: "web".to_owned() };
        let labels = Labels::from([("env".to_owned(), "prod".to_owned())]);
        let agent = NamedAgent { id: AgentId::generate(), name: "shop-1".to_owned(), labels };
        let of_stack = Happening::of_stack(event, Timestamp::UNIX_EPOCH, stack, SequenceId(1));
        Happening { agent: Some(agent), ..of_stack }
    }

    #[test]
    fn each_part_of_a_filter_restricts_and_all_have_to_agree() {
        let failed = happening(WebhookEvent::Failed);
        let (stack, agent) = (failed.stack.clone().unwrap(), failed.agent.clone().unwrap());
        let events = vec![WebhookEvent::Failed];
        let with = |stacks: &[&str], agents: &[&str], selector: Option<&str>| WebhookFilter {
            events: events.clone(),
            stacks: stacks.iter().map(|&name| name.to_owned()).collect(),
            agents: agents.iter().map(|&name| name.to_owned()).collect(),
            agent_selector: selector.map(|text| text.parse().unwrap()),
        };
        let (stack_id, agent_id) = (stack.id.to_string(), agent.id.to_string());
        for (filter, wanted) in [
            (with(&[], &[], None), true),
            (with(&["web"], &[], None), true),
            (with(&["api", &stack_id], &[], None), true),
            (with(&["api"], &[], None), false),
            (with(&[], &["shop-1"], None), true),
            (with(&[], &[&agent_id], None), true),
            (with(&[], &["shop-2"], None), false),
            (with(&[], &[], Some("env=prod")), true),
            (with(&[], &[], Some("env!=prod")), false),
            (with(&["web"], &["shop-2"], Some("env=prod")), false),
        ] {
            assert_eq!(wants(&filter, &failed), wanted, "{filter:?}");
        }
        // The message is not about an agent: a webhook that filters by agent does not get it.
        let submitted = Happening { agent: None, ..happening(WebhookEvent::ObjectSubmitted) };
        assert!(wants(&WebhookFilter::default(), &submitted));
        for filter in [
            WebhookFilter { agents: vec!["shop-1".to_owned()], ..WebhookFilter::default() },
            WebhookFilter { agent_selector: Some("!env".parse().unwrap()), ..WebhookFilter::default() },
        ] {
            assert!(!wants(&filter, &submitted), "{filter:?}");
        }
    }

    #[test]
    fn f7_a_webhook_without_named_events_is_notified_only_of_lasting_troubles() {
        let all = WebhookFilter::default();
        for (event, wanted) in [
            (WebhookEvent::Applied, true),
            (WebhookEvent::Healthy, true),
            (WebhookEvent::Removed, true),
            (WebhookEvent::Failed, false),
            (WebhookEvent::Degraded, false),
            (WebhookEvent::Blocked, false),
            (WebhookEvent::Repaired, false),
            (WebhookEvent::FailureLasts, true),
            (WebhookEvent::FailureResolved, true),
            (WebhookEvent::DriftLasts, true),
            (WebhookEvent::DriftResolved, true),
        ] {
            assert_eq!(wants(&all, &happening(event)), wanted, "{event}");
        }
    }

    #[test]
    fn a_filter_is_bounded() {
        let many = WebhookFilter { stacks: vec![String::new(); 101], ..WebhookFilter::default() };
        assert_eq!(check(&many), Err(BadFilter::TooMany));
        let ping = WebhookFilter { events: vec![WebhookEvent::Ping], ..WebhookFilter::default() };
        assert_eq!(check(&ping), Err(BadFilter::Ping));
        assert_eq!(check(&WebhookFilter::default()), Ok(()));
    }
}
