//! Suspensions, and what others changed meanwhile.

use std::time::Duration;

use brokkr_api::SuspensionId;
use brokkr_api::reason::{Message, ObjectRef};
use brokkr_api::suspensions::Suspension;
use serde::Serialize;

use super::table::Table;
use super::text::{age, clean};
use super::{Listed, RenderOptions, Show};

impl Listed for Suspension {
    const NONE: &'static str = "no suspensions";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("SUSPENSION", |suspension| &suspension.id)
            .plain("LEFT", left)
            .sentence("OBJECT", |suspension| {
                suspension.object.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string)
            })
            .sentence("AGENTS", agents)
            .sentence("REASON", |suspension| clean(&suspension.reason))
            .plain("BY", |suspension| &suspension.created_by)
            .plain("AGE", |suspension| age(suspension.created_at, now))
            .wide("ENDED BY", |suspension| {
                let ended = suspension.ended.as_ref();
                ended.and_then(|ended| ended.by.clone()).unwrap_or_else(|| "-".to_owned())
            })
    }

    fn name(&self) -> String {
        format!("suspension/{}", self.id)
    }
}

/// `stack web`, or `Deployment web of stack web on shop-1`
pub fn what(suspension: &Suspension) -> String {
    let stack = format!("stack {}", suspension.stack_name);
    let what = match &suspension.object {
        Some(object) => format!("{object} of {stack}"),
        None => stack,
    };
    match (&suspension.agent, &suspension.selector) {
        (None, None) => what,
        _ => format!("{what} on {}", agents(suspension)),
    }
}

fn agents(suspension: &Suspension) -> String {
    match (&suspension.agent, &suspension.selector) {
        (Some(agent), _) => agent.clone(),
        (None, Some(selector)) => selector.to_string(),
        (None, None) => "all".to_owned(),
    }
}

/// What is left of its time, or how it ended.
pub fn left(suspension: &Suspension) -> String {
    match &suspension.ended {
        Some(ended) => ended.cause.to_string(),
        None => {
            let left = Duration::from_secs(suspension.left_seconds.into());
            humantime::format_duration(left).to_string()
        }
    }
}

/// What others changed in one object while it was suspended.
#[derive(Debug, Serialize)]
pub struct Edit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<SuspensionId>,
    pub agent: String,
    pub object: ObjectRef,
    /// A strategic merge patch; absent if the object was deleted, or if the patch is too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<serde_json::Value>,
    pub message: Message,
}

#[derive(Debug, Serialize)]
pub struct Edits {
    pub edits: Vec<Edit>,
}

impl Show for Edits {
    fn text(&self, _: &RenderOptions) -> String {
        if self.edits.is_empty() {
            return "others have changed nothing during suspensions that have ended".to_owned();
        }
        let text = |edit: &Edit| {
            let title =
                format!("# {} on {}: {}", clean(&edit.object), clean(&edit.agent), clean(&edit.message));
            match &edit.patch {
                Some(patch) => format!("{title}\n{}", clean_lines(patch)),
                None => title,
            }
        };
        self.edits.iter().map(text).collect::<Vec<_>>().join("\n---\n")
    }

    fn names(&self) -> Vec<String> {
        self.edits.iter().map(|edit| edit.object.to_string()).collect()
    }
}

/// The patch as YAML. Control characters are escaped by the format.
fn clean_lines(patch: &serde_json::Value) -> String {
    serde_saphyr::to_string(patch).unwrap_or_else(|_| patch.to_string()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use brokkr_api::suspensions::{EndCause, SuspensionEnd};
    use serde_json::json;

    use super::super::samples::{AGENT, STACK, ago, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn suspensions() {
        let debugging = Suspension {
            id: AGENT.parse().unwrap(),
            project: "default".into(),
            stack_id: STACK.parse().unwrap(),
            stack_name: "web".into(),
            agent: Some("shop-1".into()),
            selector: None,
            object: "Deployment/web".parse().ok(),
            seconds: 7200,
            left_seconds: 5400,
            reason: "debugging the cache".into(),
            created_by: "ana".into(),
            created_at: ago(1800),
            ended: None,
        };
        let ended = Suspension {
            agent: None,
            selector: "site=shop".parse().ok(),
            object: None,
            left_seconds: 0,
            ended: Some(SuspensionEnd { at: ago(60), cause: EndCause::Resumed, by: Some("ben".into()) }),
            ..debugging.clone()
        };
        assert_eq!(what(&debugging), "Deployment web of stack web on shop-1");
        insta::assert_snapshot!(rendered(&whole(vec![debugging, ended])));
    }

    #[test]
    fn edits() {
        let object = ObjectRef {
            kind: "Deployment".into(),
            namespace: Some("shop".into()),
            name: "web".into(),
            ..ObjectRef::default()
        };
        let edit = Edit {
            suspension: None,
            agent: "shop-1".into(),
            object: object.clone(),
            patch: Some(json!({"spec": {"replicas": 5}})),
            message: Message::new("changed by others while it was suspended"),
        };
        let message = Message::new("deleted by others while it was suspended");
        let deleted = Edit { suspension: None, agent: "shop-2".into(), object, patch: None, message };
        insta::assert_snapshot!(rendered(&Edits { edits: vec![edit, deleted] }));
    }
}
