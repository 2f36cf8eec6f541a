//! Checks whether a value matches a schema: the part of JSON Schema that the document uses. Other keywords
//! are errors.
//!
//! It is stricter than JSON Schema in one respect: an object may have no fields that are not described.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

/// Returns where the value does not match the schema, and why.
pub fn misfits(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut check = SchemaCheck { document, misfits: Vec::new() };
    let described = check.at("$", schema, value);
    check.undescribed("$", &described, value);
    check.misfits
}

struct SchemaCheck<'a> {
    document: &'a Value,
    misfits: Vec<String>,
}

/// The fields of an object that some part of its schema describes.
#[derive(Default)]
struct Described {
    fields: BTreeSet<String>,
    /// Any field is allowed.
    all: bool,
}

impl SchemaCheck<'_> {
    fn report(&mut self, at: &str, what: impl std::fmt::Display) {
        self.misfits.push(format!("{at}: {what}"));
    }

    fn at(&mut self, at: &str, schema: &Value, value: &Value) -> Described {
        let mut described = Described::default();
        let Some(keywords) = schema.as_object() else {
            self.report(at, "no schema");
            return described;
        };
        // An empty schema allows everything.
        described.all = keywords.keys().all(|keyword| keyword == "description");
        for (keyword, wanted) in keywords {
            match keyword.as_str() {
                "$ref" => {
                    let pointer = wanted.as_str().unwrap_or_default().trim_start_matches('#');
                    let document = self.document;
                    match document.pointer(pointer) {
                        Some(schema) => described.add(self.at(at, schema, value)),
                        None => self.report(at, format!("{wanted} does not exist")),
                    }
                }
                "allOf" => {
                    for schema in wanted.as_array().into_iter().flatten() {
                        described.add(self.at(at, schema, value));
                    }
                }
                "oneOf" => described.add(self.one_of(at, wanted, value)),
                "type" => self.typed(at, wanted, value),
                "enum" => {
                    if wanted.as_array().is_none_or(|values| !values.contains(value)) {
                        self.report(at, format!("{value} is none of {wanted}"));
                    }
                }
                "format" => self.formatted(at, wanted.as_str().unwrap_or_default(), value),
                "minimum" => {
                    if value.as_f64() < wanted.as_f64() && value.is_number() {
                        self.report(at, format!("{value} is below {wanted}"));
                    }
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.whole(&format!("{at}[{index}]"), wanted, item);
                    }
                }
                "required" => {
                    for field in wanted.as_array().into_iter().flatten().filter_map(Value::as_str) {
                        if value.is_object() && value.get(field).is_none() {
                            self.report(at, format!("{field} is missing"));
                        }
                    }
                }
                "properties" => described.add(self.properties(at, wanted, value)),
                "additionalProperties" => described.add(self.additional(at, keywords, wanted, value)),
                "propertyNames" | "description" | "title" | "example" | "examples" => {}
                unknown => self.report(at, format!("the keyword {unknown} is not known here")),
            }
        }
        described.all |= keywords.get("type").is_some_and(|kind| kind == "object")
            && !keywords.contains_key("properties")
            && !keywords.contains_key("additionalProperties");
        described
    }

    /// Checks a value with its own schema, which has to describe all of its fields.
    fn whole(&mut self, at: &str, schema: &Value, value: &Value) {
        let described = self.at(at, schema, value);
        self.undescribed(at, &described, value);
    }

    fn undescribed(&mut self, at: &str, described: &Described, value: &Value) {
        let fields = value.as_object().into_iter().flat_map(Map::keys);
        for field in fields.filter(|field| !described.all && !described.fields.contains(*field)) {
            self.report(at, format!("{field} is not described"));
        }
    }

    fn one_of(&mut self, at: &str, schemas: &Value, value: &Value) -> Described {
        let mut fits = Vec::new();
        let mut other_misfits = Vec::new();
        for schema in schemas.as_array().into_iter().flatten() {
            let mut check = SchemaCheck { document: self.document, misfits: Vec::new() };
            let described = check.at(at, schema, value);
            if check.misfits.is_empty() { fits.push(described) } else { other_misfits.extend(check.misfits) }
        }
        if fits.len() != 1 {
            self.report(at, format!("matches {} of several schemas, not one: {other_misfits:?}", fits.len()));
        }
        fits.pop().unwrap_or_default()
    }

    fn properties(&mut self, at: &str, properties: &Value, value: &Value) -> Described {
        let mut described = Described::default();
        for (field, schema) in properties.as_object().into_iter().flatten() {
            described.fields.insert(field.clone());
            if let Some(value) = value.get(field) {
                self.whole(&format!("{at}.{field}"), schema, value);
            }
        }
        described
    }

    fn additional(
        &mut self,
        at: &str,
        keywords: &Map<String, Value>,
        wanted: &Value,
        value: &Value,
    ) -> Described {
        let mut described = Described::default();
        if wanted == &Value::Bool(false) {
            return described;
        }
        let own = keywords.get("properties");
        for (field, value) in value.as_object().into_iter().flatten() {
            if own.is_none_or(|own| own.get(field).is_none()) {
                described.fields.insert(field.clone());
                self.whole(&format!("{at}.{field}"), wanted, value);
            }
        }
        described
    }

    fn typed(&mut self, at: &str, wanted: &Value, value: &Value) {
        let is = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            _ => false,
        };
        let fits = match wanted {
            Value::String(kind) => is(kind),
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is),
            _ => false,
        };
        if !fits {
            self.report(at, format!("{value} is not of type {wanted}"));
        }
    }

    fn formatted(&mut self, at: &str, format: &str, value: &Value) {
        let fits = match (format, value) {
            ("uuid", Value::String(text)) => text.parse::<Uuid>().is_ok(),
            ("date-time", Value::String(text)) => text.parse::<Timestamp>().is_ok(),
            ("int32", Value::Number(number)) => {
                number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
            }
            ("int64", Value::Number(number)) => number.is_i64(),
            (_, Value::Null) => true,
            _ => false,
        };
        if !fits {
            self.report(at, format!("{value} is not a valid {format}"));
        }
    }
}

impl Described {
    fn add(&mut self, other: Self) {
        self.fields.extend(other.fields);
        self.all |= other.all;
    }
}

#[test]
fn misfits_are_reported() {
    let document = serde_json::json!({ "components": { "schemas": { "Base": {
        "type": "object", "required": ["id"], "properties": { "id": { "type": "string", "format": "uuid" } },
    } } } });
    let schema = serde_json::json!({ "allOf": [
        { "$ref": "#/components/schemas/Base" },
        { "type": "object", "properties": { "count": { "type": ["integer", "null"], "minimum": 0 } } },
    ] });
    let fits = |value: Value| misfits(&document, &schema, &value);
    let id = "0197a000-0000-7000-8000-000000000001";
    assert_eq!(fits(serde_json::json!({ "id": id, "count": 1 })), Vec::<String>::new());
    for (wrong, misfit) in [
        (serde_json::json!({ "count": 1 }), "$: id is missing"),
        (serde_json::json!({ "id": "x" }), "$.id: \"x\" is not a valid uuid"),
        (serde_json::json!({ "id": id, "count": -1 }), "$.count: -1 is below 0"),
        (
            serde_json::json!({ "id": id, "count": "1" }),
            "$.count: \"1\" is not of type [\"integer\",\"null\"]",
        ),
        (serde_json::json!({ "id": id, "more": 1 }), "$: more is not described"),
    ] {
        assert_eq!(fits(wrong), [misfit]);
    }
}
