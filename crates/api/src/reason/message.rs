//! Text for people.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A sentence for people, possibly in the words of an API server or a controller.
///
/// It deliberately has no string methods: a program must decide by a [`super::Reason`] instead.
///
/// ```compile_fail,E0599
/// let message = brokkr_api::reason::Message::new("would delete 60 of 100 objects");
/// message.contains("would delete");
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct Message(String);

impl Message {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns this message, or another one if it is empty.
    #[must_use]
    pub fn or(self, otherwise: impl FnOnce() -> Self) -> Self {
        if self.is_empty() { otherwise() } else { self }
    }

    /// Returns at most `longest` characters, without NUL, which PostgreSQL cannot store. An ellipsis marks a
    /// cut.
    #[must_use]
    pub fn clipped(&self, longest: usize) -> Self {
        let mut characters = self.0.chars().filter(|character| *character != '\0');
        let mut text: String = characters.by_ref().take(longest).collect();
        if characters.next().is_some() {
            text.push('…');
        }
        Self(text)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
