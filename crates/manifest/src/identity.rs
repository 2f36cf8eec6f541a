//! The identity of a resource.
//!
//! A resource keeps its identity when its manifest moves from `v1beta1` to `v1`: inventories and comparisons use the
//! [`Key`], which has no version. The version is only needed for requests to the API server.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A resource as named in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    /// `None` if the manifest has none: the object is cluster-scoped, or is applied to a default namespace.
    pub namespace: Option<String>,
    pub name: String,
}

impl Identity {
    /// Returns `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the key of the resource, without the version.
    pub fn key(&self) -> Key {
        Key {
            group: self.group.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_display_name(formatter, &self.kind, self.namespace.as_deref(), &self.name)
    }
}

/// A resource, independent of the version. Written as `group/Kind/namespace/name`, with an empty part for the core
/// group or an absent namespace: `apps/Deployment/shop/web`, `/Namespace//shop`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl Key {
    /// Returns the key as `Deployment shop/web`, like the display form of [`Identity`].
    pub fn display_name(&self) -> impl fmt::Display + '_ {
        DisplayName(self)
    }

    /// Returns the namespace that a change of this resource affects: its own, or the Namespace itself.
    #[must_use]
    pub fn affected_namespace(&self) -> Option<&str> {
        let is_namespace = self.group.is_empty() && self.kind == "Namespace";
        if is_namespace { Some(&self.name) } else { self.namespace.as_deref() }
    }
}

struct DisplayName<'a>(&'a Key);

impl fmt::Display for DisplayName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_display_name(formatter, &self.0.kind, self.0.namespace.as_deref(), &self.0.name)
    }
}

fn write_display_name(
    formatter: &mut fmt::Formatter<'_>,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> fmt::Result {
    match namespace {
        Some(namespace) => write!(formatter, "{kind} {namespace}/{name}"),
        None => write!(formatter, "{kind} {name}"),
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        write!(formatter, "{}/{}/{namespace}/{}", self.group, self.kind, self.name)
    }
}

/// The text is not a valid [`Key`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a resource key is written as group/Kind/namespace/name, for example apps/Deployment/shop/web")]
pub struct KeyError;

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut parts = text.split('/');
        let (Some(group), Some(kind), Some(namespace), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(KeyError);
        };
        if kind.is_empty() || name.is_empty() {
            return Err(KeyError);
        }
        Ok(Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
        })
    }
}

// One string instead of four fields: inventories have ten thousand keys, and a string can be the key of a
// JSON map.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_resource_is_displayed_as_kind_and_name() {
        let mut identity = Identity {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        };
        assert_eq!(identity.to_string(), "Deployment shop/web");
        assert_eq!(identity.api_version(), "apps/v1");
        assert_eq!(identity.key().to_string(), "apps/Deployment/shop/web");
        identity.namespace = None;
        assert_eq!(identity.key().display_name().to_string(), "Deployment web");
        assert_eq!(identity.key().to_string(), "apps/Deployment//web");
    }

    #[test]
    fn a_key_with_parts_missing_or_too_many_is_refused() {
        for text in ["", "apps/Deployment/web", "apps//shop/web", "apps/Deployment/shop/", "a/B/c/d/e"] {
            assert_eq!(text.parse::<Key>(), Err(KeyError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_or_serialised_key_parses_to_the_same_key(
            group in "[a-z.]{0,12}", kind in "[A-Z][a-z]{0,8}",
            namespace in proptest::option::of("[a-z-]{1,12}"), name in "[a-z.:-]{1,12}",
        ) {
            let key = Key { group, kind, namespace, name };
            prop_assert_eq!(&key.to_string().parse::<Key>().unwrap(), &key);
            let json = serde_json::to_string(&key).unwrap();
            prop_assert_eq!(serde_json::from_str::<Key>(&json).unwrap(), key);
        }
    }
}
