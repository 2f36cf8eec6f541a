//! The health of objects, and what decided it.

use brokkr_health::{AppliedRule, Decision, Health, HealthState};
use brokkr_manifest::Identity;
use serde::Serialize;

use super::Listed;
use super::table::{BAD, CAREFUL, Cell, GOOD, Table, UNDER_WAY, painted};

/// The health of one object.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectHealth {
    pub group: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    #[serde(flatten)]
    pub health: Health,
    pub decided_by: DecidedBy,
}

/// What decided the health. A rule is named by its groups and kinds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "source")]
pub enum DecidedBy {
    /// Brokkr knows this kind of Kubernetes.
    BuiltInKind,
    BuiltInRule {
        rule: String,
    },
    File {
        file: String,
        rule: String,
    },
    /// The standard conditions.
    Conditions,
}

impl ObjectHealth {
    /// Takes the file that the given rules are from.
    pub fn new(identity: &Identity, decision: Decision<'_>, file: &str) -> Self {
        let decided_by = match decision.rule {
            AppliedRule::BuiltInKind => DecidedBy::BuiltInKind,
            AppliedRule::Given(rule) => DecidedBy::File { file: file.to_owned(), rule: rule.to_string() },
            AppliedRule::BuiltInRule(rule) => DecidedBy::BuiltInRule { rule: rule.to_string() },
            AppliedRule::Conditions => DecidedBy::Conditions,
        };
        Self {
            group: identity.group.clone(),
            kind: identity.kind.clone(),
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
            health: decision.health,
            decided_by,
        }
    }

    /// `shop/web`, or `web` without a namespace.
    fn full_name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Listed for ObjectHealth {
    const NONE: &'static str = "no objects";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        table
            .plain("KIND", |object| &object.kind)
            .plain("OBJECT", Self::full_name)
            .plain("STATE", |object| state(object.health.state))
            .plain("REASON", |object| object.health.reason.code())
            .sentence("MESSAGE", |object| &object.health.message)
            .sentence("RULE", |object| rule(&object.decided_by))
    }

    fn name(&self) -> String {
        format!("{}/{}", self.kind, self.full_name())
    }
}

fn state(state: HealthState) -> Cell {
    match state {
        HealthState::Ready => painted("ready", GOOD),
        HealthState::Progressing => painted("progressing", UNDER_WAY),
        HealthState::Failed => painted("failed", BAD),
        HealthState::Suspended => painted("suspended", CAREFUL),
        HealthState::Terminating => painted("terminating", UNDER_WAY),
        HealthState::Unknown => "unknown".into(),
    }
}

/// `built-in rule for cert-manager.io/Certificate`
fn rule(decided_by: &DecidedBy) -> String {
    match decided_by {
        DecidedBy::BuiltInKind => "built-in kind".to_owned(),
        DecidedBy::BuiltInRule { rule } => format!("built-in rule for {rule}"),
        DecidedBy::File { file, rule } => format!("{file}, rule for {rule}"),
        DecidedBy::Conditions => "standard conditions".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::reason::Reason;

    use super::super::samples::rendered;
    use super::super::whole;
    use super::*;

    #[test]
    fn health() {
        let object = |kind: &str, name: &str, state, reason: &str, message: &str, decided_by| ObjectHealth {
            group: String::new(),
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: name.into(),
            health: Health { state, reason: Reason::from_kubernetes(reason), message: message.into() },
            decided_by,
        };
        let certificate = DecidedBy::BuiltInRule { rule: "cert-manager.io/Certificate".into() };
        let file = DecidedBy::File { file: "rules.yaml".into(), rule: "example.com/Widget".into() };
        let (replicas, built_in) = ("3/3 replicas ready", DecidedBy::BuiltInKind);
        let invalid = "The certificate request has failed and will be retried: order is in \"invalid\" state";
        let objects = vec![
            object("Deployment", "web", HealthState::Ready, "Ready", replicas, built_in),
            object("Certificate", "shop", HealthState::Failed, "Failed", invalid, certificate),
            object("Widget", "one", HealthState::Suspended, "Paused", "paused by ana", file),
            object("Gadget", "two", HealthState::Progressing, "Waiting", "", DecidedBy::Conditions),
        ];
        insta::assert_snapshot!(rendered(&whole(objects)));
    }
}
