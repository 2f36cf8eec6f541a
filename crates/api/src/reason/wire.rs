//! A reason as JSON: `reason`, the word, and `details`, if any. Both are flattened into the explained value.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::Reason;

#[derive(Serialize, Deserialize, ToSchema)]
struct Wire<'a> {
    /// One word for programs, such as `PruneNeedsApproval`; empty if there is nothing to explain.
    #[serde(default)]
    reason: Cow<'a, str>,
    /// Details of the reason, such as `{"delete": 60, "total": 100}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Other(word) => Wire { reason: word.into(), details: None }.serialize(serializer),
            known => Self::serialize(known, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Reason {
    /// Accepts any reason: an unknown word, or details that a newer peer has changed, become `Other`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        Ok(Self::from_parts(&wire.reason, wire.details))
    }
}

impl Reason {
    /// Returns the reason with this word and these details, as they are stored.
    #[must_use]
    pub fn from_parts(word: &str, details: Option<Value>) -> Self {
        let mut tagged = serde_json::Map::from_iter([("reason".to_owned(), word.into())]);
        tagged.extend(details.map(|details| ("details".to_owned(), details)));
        Self::deserialize(Value::Object(tagged)).unwrap_or_else(|_| Self::Other(word.to_owned()))
    }

    /// Returns the details, as they are stored next to the word.
    #[must_use]
    pub fn details(&self) -> Option<Value> {
        serde_json::to_value(self).ok()?.get_mut("details").map(Value::take)
    }

    /// Returns the reason without details, for a peer that did not announce that it reads them.
    #[must_use]
    pub fn without_details(&self) -> Self {
        match self.details() {
            Some(_) => Self::Other(self.code().to_owned()),
            None => self.clone(),
        }
    }
}

impl PartialSchema for Reason {
    fn schema() -> RefOr<Schema> {
        Wire::schema()
    }
}

impl ToSchema for Reason {}
