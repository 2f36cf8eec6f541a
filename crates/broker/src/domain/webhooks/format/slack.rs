//! Messages for incoming webhooks of Slack: a line for notifications, and blocks.

use serde_json::{Value, json};

use super::clipped;
use crate::domain::alerts::message::AlertMessage;

/// Limits of Slack, in characters.
const LONGEST_HEADER: usize = 150;
const LONGEST_TEXT: usize = 3000;

pub fn line(text: &str) -> Value {
    json!({ "text": clipped(&escaped(text), LONGEST_TEXT) })
}

pub fn alert(alert: &AlertMessage) -> Value {
    let title = alert.title();
    let mark = if alert.is_resolved() { ":white_check_mark:" } else { ":rotating_light:" };
    let facts = [
        ("Project", alert.subject.project.clone()),
        ("Stack", alert.subject.stack.name.clone()),
        ("Agents", alert.agents().to_string()),
        ("Since", alert.since().to_string()),
    ];
    let fields: Vec<Value> =
        facts.iter().map(|(name, value)| markdown(&format!("*{name}*\n{}", escaped(value)))).collect();
    let mut blocks = vec![
        json!({ "type": "header", "text": {
            "type": "plain_text", "emoji": true, "text": clipped(&format!("{mark} {title}"), LONGEST_HEADER) } }),
        json!({ "type": "section", "fields": fields }),
    ];
    let mut section = |text: String| blocks.push(json!({ "type": "section", "text": markdown(&text) }));
    if let Some(examples) = alert.examples() {
        section(format!("*For example*\n{}", escaped(&examples)));
    }
    if let Some(quoted) = alert.quoted() {
        // Without a backquote, nothing ends the code block.
        section(format!("```{}```", escaped(&quoted.replace('`', "'"))));
    }
    if let Some(advice) = alert.advice() {
        let command = alert.command().map(|command| format!("\n`{}`", escaped(&command))).unwrap_or_default();
        section(format!("*Next*\n{}{command}", escaped(advice)));
    }
    json!({ "text": escaped(&title), "blocks": blocks })
}

fn markdown(text: &str) -> Value {
    json!({ "type": "mrkdwn", "text": clipped(text, LONGEST_TEXT) })
}

/// Escapes the characters with which links and mentions begin.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
