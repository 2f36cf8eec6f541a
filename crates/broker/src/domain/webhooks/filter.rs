//! Whether a webhook subscribes to a message.

use brokkr_api::selector::Selector;
use brokkr_api::webhooks::{FILTER_NAMES, WebhookEvent, WebhookFilter, WebhookFormat};
use brokkr_api::{AgentId, Labels};

use super::happening::{Happening, NamedStack};

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

/// Returns whether a webhook gets the message. `labels` are those of the stack.
#[must_use]
pub fn wants(filter: &WebhookFilter, format: WebhookFormat, happening: &Happening, labels: &Labels) -> bool {
    let agent = happening.agent.as_ref();
    wants_event(filter, format, happening.event)
        && wants_stack(filter, happening.stack.as_ref().map(|stack| (stack, labels)))
        && match agent {
            Some(agent) => {
                wants_agent(filter, agent.id, &agent.name, |selector| selector.matches(&agent.labels))
            }
            None => !selects_agents(filter),
        }
}

/// Returns whether a webhook gets messages of this type.
#[must_use]
pub fn wants_event(filter: &WebhookFilter, format: WebhookFormat, event: WebhookEvent) -> bool {
    match (filter.events.as_slice(), format) {
        ([], WebhookFormat::Standard) => !is_passing(event),
        ([], _) => event.is_alert(),
        (events, _) => events.contains(&event),
    }
}

/// Returns whether a webhook gets messages about this stack, or about none.
#[must_use]
pub fn wants_stack(filter: &WebhookFilter, stack: Option<(&NamedStack, &Labels)>) -> bool {
    match stack {
        Some((stack, labels)) => {
            (filter.stacks.is_empty() || names(&filter.stacks, &stack.name, &stack.id.to_string()))
                && filter.stack_selector.as_ref().is_none_or(|selector| selector.matches(labels))
        }
        None => filter.stacks.is_empty() && filter.stack_selector.is_none(),
    }
}

/// Returns whether a webhook gets messages about this agent.
#[must_use]
pub fn wants_agent(
    filter: &WebhookFilter,
    id: AgentId,
    name: &str,
    matches: impl Fn(&Selector) -> bool,
) -> bool {
    (filter.agents.is_empty() || names(&filter.agents, name, &id.to_string()))
        && filter.agent_selector.as_ref().is_none_or(matches)
}

/// Returns whether a webhook gets messages about some agents only.
#[must_use]
pub fn selects_agents(filter: &WebhookFilter) -> bool {
    !filter.agents.is_empty() || filter.agent_selector.is_some()
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
    use brokkr_api::{SequenceId, StackId};
    use jiff::Timestamp;

    use super::super::happening::NamedAgent;
    use super::*;

    fn wants(filter: &WebhookFilter, happening: &Happening) -> bool {
        let labels = Labels::from([("team".to_owned(), "payments".to_owned())]);
        super::wants(filter, WebhookFormat::Standard, happening, &labels)
    }

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
            ..WebhookFilter::default()
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
            (WebhookEvent::AlertOpened, true),
            (WebhookEvent::AlertUpdated, true),
            (WebhookEvent::AlertResolved, true),
        ] {
            assert_eq!(wants(&all, &happening(event)), wanted, "{event}");
        }
    }

    #[test]
    fn a_webhook_of_a_chat_or_pager_gets_only_alerts_unless_it_names_events() {
        let some = WebhookFilter { events: vec![WebhookEvent::RolloutStopped], ..WebhookFilter::default() };
        for format in [WebhookFormat::Slack, WebhookFormat::Teams, WebhookFormat::PagerDuty] {
            assert!(!wants_event(&WebhookFilter::default(), format, WebhookEvent::Applied));
            assert!(wants_event(&WebhookFilter::default(), format, WebhookEvent::AlertOpened));
            assert!(wants_event(&some, format, WebhookEvent::RolloutStopped));
            assert!(!wants_event(&some, format, WebhookEvent::AlertOpened));
        }
    }

    #[test]
    fn messages_are_routed_by_the_labels_of_the_stack() {
        let routed = |selector: &str| WebhookFilter {
            stack_selector: Some(selector.parse().unwrap()),
            ..WebhookFilter::default()
        };
        let applied = happening(WebhookEvent::Applied);
        assert!(wants(&routed("team=payments"), &applied));
        assert!(!wants(&routed("team=search"), &applied));
        let of_no_stack = Happening { stack: None, ..applied };
        assert!(!wants(&routed("!team"), &of_no_stack));
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
