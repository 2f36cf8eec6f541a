//! The hash of our managedFields entry, computed while it is decoded.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};

/// The hash of a `fieldsV1` tree, computed while it is decoded: the tree itself is never built.
#[derive(Clone, Debug, Default)]
pub struct FieldsDigest(pub String);

impl<'de> Deserialize<'de> for FieldsDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut hash = Sha256::new();
        deserializer.deserialize_any(Feed(&mut hash))?;
        let digest = hash.finalize();
        Ok(Self(hex::encode(&digest[..16])))
    }
}

struct Feed<'a>(&'a mut Sha256);

impl<'de> DeserializeSeed<'de> for Feed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Feed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tree of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.update(b"{");
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            self.0.update(key.as_bytes());
            self.0.update(b":");
            map.next_value_seed(Feed(self.0))?;
        }
        self.0.update(b"}");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.update(b"[");
        while items.next_element_seed(Feed(self.0))?.is_some() {
            self.0.update(b",");
        }
        self.0.update(b"]");
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.update(text.as_bytes());
        Ok(())
    }
    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.update([u8::from(value)]);
        Ok(())
    }
    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.update(value.to_be_bytes());
        Ok(())
    }
    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.update(value.to_be_bytes());
        Ok(())
    }
    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.update(value.to_be_bytes());
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.update(b"null");
        Ok(())
    }
}
