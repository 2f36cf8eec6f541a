//! What a rule looks at: conditions and fields.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::path::FieldPath;
use crate::report::ConditionStatus;

/// A statement about an object, which holds or does not.
///
/// If its path contains `[*]`, it must hold for every element in `ready`, and for one element in `failed` and `suspended`. For an
/// empty list it does not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CheckDocument", into = "CheckDocument")]
pub enum Check {
    Condition(ConditionCheck),
    Field(FieldCheck),
}

/// There is a condition with this status.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionCheck {
    /// Its type, such as `Ready`.
    pub condition: String,
    pub status: ConditionStatus,
    /// Its reason is one of these; if empty, any.
    pub reasons: Vec<String>,
    /// The list of conditions: `status.conditions`, or another one below `status`.
    pub conditions: FieldPath,
    /// Whether the check also holds if there is no such condition.
    pub or_absent: bool,
}

/// A field has a value.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldCheck {
    pub field: FieldPath,
    pub comparison: Comparison,
    /// The field with the controller's own message.
    pub message: Option<FieldPath>,
    /// Whether the check also holds if the field is absent.
    pub or_absent: bool,
}

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    Equals(Value),
    OneOf(Vec<Value>),
    /// Whether it is present, and not null.
    Exists(bool),
    /// The value of another field.
    EqualsField(FieldPath),
    /// A number that is not less than another field. If the field is absent, it counts as 0.
    AtLeastField(FieldPath),
}

impl Check {
    pub(super) fn may_be_absent(&self) -> bool {
        match self {
            Self::Condition(check) => check.or_absent,
            Self::Field(check) => check.or_absent,
        }
    }
}

/// A check as it is written: either `condition` or `field`, and what belongs to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = HealthCheck)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    #[serde(default, deserialize_with = "condition_status", skip_serializing_if = "Option::is_none")]
    status: Option<ConditionStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    conditions: Option<FieldPath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    field: Option<FieldPath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    equals: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    one_of: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    equals_field: Option<FieldPath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    at_least_field: Option<FieldPath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    message: Option<FieldPath>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    or_absent: bool,
}

/// Reads a status strictly. Without quotes, `True` and `False` are booleans in YAML.
fn condition_status<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<ConditionStatus>, D::Error> {
    match Value::deserialize(reader)? {
        Value::Bool(true) => Ok(Some(ConditionStatus::True)),
        Value::Bool(false) => Ok(Some(ConditionStatus::False)),
        Value::String(text) if text == "True" => Ok(Some(ConditionStatus::True)),
        Value::String(text) if text == "False" => Ok(Some(ConditionStatus::False)),
        Value::String(text) if text == "Unknown" => Ok(Some(ConditionStatus::Unknown)),
        _ => Err(serde::de::Error::custom("status must be True, False or Unknown")),
    }
}

impl TryFrom<CheckDocument> for Check {
    type Error = String;

    fn try_from(mut document: CheckDocument) -> Result<Self, String> {
        match (document.condition.take(), document.field.take()) {
            (Some(condition), None) => document.condition_check(condition).map(Self::Condition),
            (None, Some(field)) => document.field_check(field).map(Self::Field),
            _ => Err("a check has either condition or field".to_owned()),
        }
    }
}

impl CheckDocument {
    fn condition_check(self, condition: String) -> Result<ConditionCheck, String> {
        if condition.is_empty() {
            return Err("condition must be the type of a condition, such as Ready".to_owned());
        }
        let comparisons = self.comparisons();
        if self.message.is_some() || !comparisons.is_empty() {
            return Err(format!(
                "the check of the condition {condition} has only status, reasons, conditions and or_absent"
            ));
        }
        let conditions = self.conditions.unwrap_or_else(FieldPath::conditions);
        if conditions.root() != "status" {
            return Err(format!("conditions must be below status, not {conditions}"));
        }
        let status = self.status.unwrap_or(ConditionStatus::True);
        Ok(ConditionCheck { condition, status, reasons: self.reasons, conditions, or_absent: self.or_absent })
    }

    fn field_check(self, field: FieldPath) -> Result<FieldCheck, String> {
        if self.status.is_some() || !self.reasons.is_empty() || self.conditions.is_some() {
            return Err(format!("status, reasons and conditions are not for the field {field}"));
        }
        let mut comparisons = self.comparisons();
        let (Some(comparison), true) = (comparisons.pop(), comparisons.is_empty()) else {
            return Err(format!(
                "the check of {field} needs exactly one of equals, one_of, exists, equals_field and at_least_field"
            ));
        };
        let other = match &comparison {
            Comparison::EqualsField(other) | Comparison::AtLeastField(other) => Some(other),
            Comparison::Equals(_) | Comparison::OneOf(_) | Comparison::Exists(_) => None,
        };
        if let Some(path) = other.into_iter().chain(&self.message).find(|path| path.has_each()) {
            return Err(format!("{path} must lead to one value, without [*]"));
        }
        Ok(FieldCheck { field, comparison, message: self.message, or_absent: self.or_absent })
    }

    fn comparisons(&self) -> Vec<Comparison> {
        let all = [
            self.equals.clone().map(Comparison::Equals),
            self.one_of.clone().map(Comparison::OneOf),
            self.exists.map(Comparison::Exists),
            self.equals_field.clone().map(Comparison::EqualsField),
            self.at_least_field.clone().map(Comparison::AtLeastField),
        ];
        all.into_iter().flatten().collect()
    }
}

impl From<Check> for CheckDocument {
    fn from(check: Check) -> Self {
        match check {
            Check::Condition(check) => Self {
                condition: Some(check.condition),
                status: Some(check.status),
                reasons: check.reasons,
                conditions: Some(check.conditions),
                or_absent: check.or_absent,
                ..Self::default()
            },
            Check::Field(check) => {
                let document = Self {
                    field: Some(check.field),
                    message: check.message,
                    or_absent: check.or_absent,
                    ..Self::default()
                };
                match check.comparison {
                    Comparison::Equals(value) => Self { equals: Some(value), ..document },
                    Comparison::OneOf(values) => Self { one_of: Some(values), ..document },
                    Comparison::Exists(exists) => Self { exists: Some(exists), ..document },
                    Comparison::EqualsField(other) => Self { equals_field: Some(other), ..document },
                    Comparison::AtLeastField(other) => Self { at_least_field: Some(other), ..document },
                }
            }
        }
    }
}
