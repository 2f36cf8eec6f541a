//! Messages for workflows of Microsoft Teams: an Adaptive Card with text blocks and facts, which every version of cards has.

use serde_json::{Value, json};

use super::clipped;
use crate::domain::alerts::message::AlertMessage;

const VERSION: &str = "1.2";
const LONGEST_TEXT: usize = 3000;
/// Characters that begin links, emphasis, code or markup in a text block.
const SPECIAL: &str = "\\`*_[]<>";

pub fn line(text: &str) -> Value {
    card(vec![block(text)])
}

pub fn alert(alert: &AlertMessage) -> Value {
    let color = if alert.is_resolved() { "good" } else { "attention" };
    let mut title = block(&alert.title());
    title["weight"] = "bolder".into();
    title["size"] = "medium".into();
    title["color"] = color.into();
    let facts = [
        ("Project", alert.subject.project.clone()),
        ("Stack", alert.subject.stack.name.clone()),
        ("Agents", alert.agents().to_string()),
        ("Since", alert.since().to_string()),
    ];
    let facts = facts.into_iter().chain(alert.examples().map(|examples| ("For example", examples)));
    let facts: Vec<Value> =
        facts.map(|(title, value)| json!({ "title": title, "value": escaped(&value) })).collect();
    let mut body = vec![title, json!({ "type": "FactSet", "facts": facts })];
    let monospace = |text: &str| {
        let mut block = block(text);
        block["fontType"] = "monospace".into();
        block
    };
    body.extend(alert.quoted().map(|quoted| monospace(&quoted)));
    body.extend(alert.advice().map(|advice| block(&format!("Next: {advice}"))));
    body.extend(alert.command().map(|command| monospace(&command)));
    card(body)
}

fn block(text: &str) -> Value {
    json!({ "type": "TextBlock", "text": escaped(&clipped(text, LONGEST_TEXT)), "wrap": true })
}

fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| SPECIAL.contains(c).then_some('\\').into_iter().chain([c])).collect()
}

fn card(body: Vec<Value>) -> Value {
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": VERSION,
        "body": body,
    });
    let attachment = json!({ "contentType": "application/vnd.microsoft.card.adaptive", "content": card });
    json!({ "type": "message", "attachments": [attachment] })
}
