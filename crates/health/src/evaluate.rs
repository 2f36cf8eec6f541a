//! Evaluates a rule that is written as data.

use std::borrow::Cow;

use brokkr_api::health_rules::{Check, Comparison, ConditionCheck, FieldCheck, HealthRule};
use serde_json::Value;

use super::conditions::{self, Condition};
use super::custom::has_no_status;
use super::fields;
use super::verdict::{Health, HealthState, ObjectView, waiting_for_controller};

/// Returns the health of an object by this rule.
pub(super) fn evaluate(rule: &HealthRule, object: &ObjectView<'_>) -> Health {
    if observed_older_generation(object) {
        return waiting_for_controller();
    }
    for (checks, state) in [(&rule.failed, HealthState::Failed), (&rule.suspended, HealthState::Suspended)] {
        if let Some(decisive) = first_that_holds(checks, object) {
            return decisive.explain(object, state);
        }
    }
    match first_that_does_not_hold(&rule.ready, object) {
        Some(decisive) => decisive.explain(object, HealthState::Progressing),
        None => explain_ready(rule, object),
    }
}

fn explain_ready(rule: &HealthRule, object: &ObjectView<'_>) -> Health {
    let mut found = rule.ready.iter().flat_map(|check| look_up(check, object));
    match found.find(Found::is_present) {
        Some(first) => first.explain(object, HealthState::Ready),
        None => Health::ready("Ready", "ready"),
    }
}

/// Argo Rollouts writes `status.observedGeneration` as text.
fn observed_older_generation(object: &ObjectView<'_>) -> bool {
    let text = object.status.get("observedGeneration").and_then(Value::as_str);
    let observed: Option<i64> = text.and_then(|text| text.parse().ok());
    observed.is_some_and(|observed| object.generation.is_some_and(|generation| observed != generation))
}

/// What a check names, at one place of an object.
enum Found<'c, 'a> {
    Condition(&'c ConditionCheck, Option<Condition<'a>>),
    Field(&'c FieldCheck, Option<Cow<'a, Value>>),
}

/// Returns what the check names: one for each element of a list.
fn look_up<'c, 'a>(check: &'c Check, object: &ObjectView<'a>) -> Vec<Found<'c, 'a>> {
    match check {
        Check::Condition(check) => {
            let lists = fields::below(object.status, check.conditions.below_root());
            let find = |list| conditions::find_in(list, &check.condition, object.generation);
            lists.into_iter().map(|list| Found::Condition(check, list.and_then(find))).collect()
        }
        Check::Field(check) => {
            let values = fields::values(object, &check.field);
            values.into_iter().map(|value| Found::Field(check, value)).collect()
        }
    }
}

/// Returns the first check that holds for an element.
fn first_that_holds<'c, 'a>(checks: &'c [Check], object: &ObjectView<'a>) -> Option<Found<'c, 'a>> {
    let mut found = checks.iter().flat_map(|check| look_up(check, object));
    found.find(|found| found.holds(object))
}

/// Returns the first check that does not hold for every element, or that has none.
fn first_that_does_not_hold<'c, 'a>(checks: &'c [Check], object: &ObjectView<'a>) -> Option<Found<'c, 'a>> {
    let mut found = checks.iter().flat_map(|check| {
        let found = look_up(check, object);
        if found.is_empty() { vec![absent(check)] } else { found }
    });
    found.find(|found| !found.holds(object))
}

fn absent<'a>(check: &Check) -> Found<'_, 'a> {
    match check {
        Check::Condition(check) => Found::Condition(check, None),
        Check::Field(check) => Found::Field(check, None),
    }
}

impl Found<'_, '_> {
    fn is_present(&self) -> bool {
        matches!(self, Self::Condition(_, Some(_)) | Self::Field(_, Some(_)))
    }

    fn holds(&self, object: &ObjectView<'_>) -> bool {
        match self {
            Self::Condition(check, None) => check.or_absent,
            Self::Condition(check, Some(condition)) => {
                condition.current
                    && condition.has_status(check.status)
                    && (check.reasons.is_empty()
                        || check.reasons.iter().any(|reason| reason == condition.reason()))
            }
            Self::Field(check, None) => check.or_absent || absent_field_holds(&check.comparison, object),
            Self::Field(check, Some(value)) => field_holds(&check.comparison, value, object),
        }
    }

    /// Returns this state, with a reason and a message for it.
    fn explain(&self, object: &ObjectView<'_>, state: HealthState) -> Health {
        match self {
            _ if has_no_status(object) && state == HealthState::Progressing => {
                Health::new(state, "WaitingForStatus", "its controller has not reported a status yet")
            }
            Self::Condition(check, None) => {
                let name = &check.condition;
                let message = format!("its controller has not reported the condition {name} yet");
                Health::new(state, "WaitingForCondition", message)
            }
            Self::Condition(_, Some(condition)) if !condition.current => waiting_for_controller(),
            Self::Condition(check, Some(condition)) => explain_condition(check, condition, state),
            Self::Field(check, value) => explain_field(check, value.as_deref(), object, state),
        }
    }
}

fn field_holds(comparison: &Comparison, value: &Value, object: &ObjectView<'_>) -> bool {
    match comparison {
        Comparison::Equals(expected) => fields::is_same(value, expected),
        Comparison::OneOf(expected) => expected.iter().any(|expected| fields::is_same(value, expected)),
        Comparison::Exists(expected) => *expected,
        Comparison::EqualsField(other) => {
            fields::value(object, other).is_some_and(|other| fields::is_same(value, &other))
        }
        Comparison::AtLeastField(other) => {
            let other = fields::value(object, other).and_then(|other| other.as_f64());
            value.as_f64().zip(other).is_some_and(|(value, other)| value >= other)
        }
    }
}

/// Kubernetes leaves out counts that are zero.
fn absent_field_holds(comparison: &Comparison, object: &ObjectView<'_>) -> bool {
    match comparison {
        Comparison::Exists(expected) => !expected,
        Comparison::AtLeastField(_) => field_holds(comparison, &Value::from(0), object),
        Comparison::Equals(_) | Comparison::OneOf(_) | Comparison::EqualsField(_) => false,
    }
}

fn explain_condition(check: &ConditionCheck, condition: &Condition<'_>, state: HealthState) -> Health {
    let name = &check.condition;
    let (reason, word) = match (condition.is_true(), condition.is_false()) {
        (true, _) => (name.clone(), "true"),
        (_, true) => (format!("Not{name}"), "false"),
        _ => (format!("Not{name}"), "unknown"),
    };
    condition.health(state, &reason, &format!("the condition {name} is {word}"))
}

fn explain_field(
    check: &FieldCheck,
    value: Option<&Value>,
    object: &ObjectView<'_>,
    state: HealthState,
) -> Health {
    let word = value.and_then(Value::as_str).filter(|text| is_reason(text));
    let reason = match (&check.comparison, word) {
        (Comparison::Equals(_) | Comparison::OneOf(_), Some(word)) => word,
        _ => match state {
            HealthState::Ready => "Ready",
            HealthState::Failed => "Failed",
            HealthState::Suspended => "Suspended",
            _ => "NotReady",
        },
    };
    let own = check.message.as_ref().and_then(|path| fields::value(object, path));
    let own = own.as_deref().and_then(Value::as_str).filter(|text| !text.is_empty());
    match own {
        Some(message) => Health::new(state, reason, message),
        None => Health::new(state, reason, described(check, value, object)),
    }
}

/// `status.readyReplicas is 2, spec.replicas is 3`
fn described(check: &FieldCheck, value: Option<&Value>, object: &ObjectView<'_>) -> String {
    let one = format!("{} is {}", check.field, fields::shown(value));
    match &check.comparison {
        Comparison::EqualsField(other) | Comparison::AtLeastField(other) => {
            let value = fields::value(object, other);
            format!("{one}, {other} is {}", fields::shown(value.as_deref()))
        }
        Comparison::Equals(_) | Comparison::OneOf(_) | Comparison::Exists(_) => one,
    }
}

/// Returns whether a text can be a reason, such as `Degraded`.
fn is_reason(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(|character| character.is_ascii_alphanumeric())
}
