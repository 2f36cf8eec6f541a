//! Parses bytes into objects, and collects all problems instead of stopping at the first.
//!
//! A valid manifest is parsed once. One with invalid YAML is parsed a second time, document by document, because only
//! that mode recovers at the next `---` and finds the problems of later documents.

use std::collections::HashMap;

use serde_json::Value;
use serde_saphyr::Spanned;

use crate::budget::Budget;
use crate::error::{Location, ManifestError, ManifestErrors, Problem};
use crate::identity::Key;
use crate::parse::yaml::problem_of;
use crate::{Manifest, Object, canonical, normal, order, refuse, shape, yields};

mod live;
mod yaml;

pub use live::parse_live;

/// Parses a manifest of one or more YAML documents (JSON is valid YAML). Lists are flattened, empty documents skipped.
pub fn parse(bytes: &[u8], budget: &Budget) -> Result<Manifest, ManifestErrors> {
    let text = text(bytes, budget).map_err(|problem| ManifestErrors::new(vec![problem.into()], true))?;
    let mut state = ParseState::new(budget);
    match serde_saphyr::from_multiple_with_options::<Spanned<Value>>(text, budget.yaml_options()) {
        Ok(documents) => {
            for document in documents {
                state.document(document);
                if state.stopped {
                    break;
                }
            }
        }
        Err(error) => parse_separately(text, &error, &mut state),
    }
    state.finish()
}

fn text<'a>(bytes: &'a [u8], budget: &Budget) -> Result<&'a str, Problem> {
    if bytes.len() > budget.total_bytes {
        return Err(Problem::TooLarge { bytes: bytes.len(), limit: budget.total_bytes });
    }
    std::str::from_utf8(bytes).map_err(|error| Problem::NotUtf8 { offset: error.valid_up_to() })
}

/// Parses the documents one by one, after parsing all of them at once failed with `first`.
fn parse_separately(text: &str, first: &serde_saphyr::Error, state: &mut ParseState<'_>) {
    let (problem, line) = problem_of(first);
    let without_document = ManifestError {
        location: Some(Location { document: None, line, items: vec![] }),
        resource: None,
        problem,
    };
    // Stop after an alias bomb: the limits of the second pass are per document, and there can be many documents.
    if matches!(without_document.problem, Problem::OverBudget { .. }) {
        state.errors.push(without_document);
        state.stopped = true;
        return;
    }

    let mut found_one = false;
    let mut bytes = text.as_bytes();
    let options = state.budget.yaml_options_without_aliases();
    for document in serde_saphyr::read_with_options::<_, Spanned<Value>>(&mut bytes, options) {
        match document {
            Ok(document) => state.document(document),
            Err(error) => {
                let (problem, line) = problem_of(&error);
                if matches!(problem, Problem::OverBudget { .. }) {
                    state.stopped = true;
                    break;
                }
                found_one = true;
                state.broken_document(problem, line);
            }
        }
        if state.stopped {
            break;
        }
    }
    // The second pass may have ended before the line at which the first one failed.
    if !found_one {
        state.errors.push(without_document);
        state.stopped = true;
    }
}

/// The objects and problems found so far.
struct ParseState<'a> {
    budget: &'a Budget,
    documents: usize,
    objects: Vec<Object>,
    seen: HashMap<Key, Location>,
    errors: Vec<ManifestError>,
    /// Whether parsing stops early.
    stopped: bool,
}

impl<'a> ParseState<'a> {
    fn new(budget: &'a Budget) -> Self {
        Self { budget, documents: 0, objects: vec![], seen: HashMap::new(), errors: vec![], stopped: false }
    }

    fn document(&mut self, document: Spanned<Value>) {
        self.documents += 1;
        let line = Some(document.referenced.line()).filter(|line| *line > 0);
        self.value(document.value, Location { document: Some(self.documents), line, items: vec![] });
    }

    fn broken_document(&mut self, problem: Problem, line: Option<u64>) {
        self.documents += 1;
        let location = Location { document: Some(self.documents), line, items: vec![] };
        // The parser cannot find the next document after a syntax error.
        self.stopped |= matches!(problem, Problem::Syntax { .. });
        self.report(&location, None, problem);
    }

    /// Adds an object or a list of objects. Nested lists occur when outputs are pasted together.
    fn value(&mut self, mut value: Value, location: Location) {
        if self.stopped {
            return;
        }
        if !shape::is_list(&value) {
            return self.object(value, location);
        }
        match value.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => {
                for (position, item) in items.into_iter().enumerate() {
                    let mut location = location.clone();
                    location.items.push(position + 1);
                    self.value(item, location);
                }
            }
            Some(Value::Null) => {}
            Some(_) => self.report(
                &location,
                Some("List"),
                Problem::Malformed { field: "items".into(), rule: "a sequence" },
            ),
            None => self.report(&location, Some("List"), Problem::Missing { field: "items" }),
        }
    }

    fn object(&mut self, mut body: Value, location: Location) {
        let identity = match shape::identify(&body) {
            Ok(identity) => identity,
            Err(problems) => {
                let resource = shape::description(&body);
                for problem in problems {
                    self.report(&location, resource.as_deref(), problem);
                }
                return;
            }
        };
        let resource = identity.to_string();
        let mut problems = refuse::problems(&identity, &body);
        problems.extend(order::problem(&body));
        problems.extend(yields::problem(&body));
        problems.extend(normal::normalise(&identity, &mut body));

        let bytes = canonical::to_bytes(&body);
        if bytes.len() > self.budget.object_bytes {
            problems.push(Problem::ObjectTooLarge { bytes: bytes.len(), limit: self.budget.object_bytes });
        }
        // Without a namespace, a namespaced object is applied to `default`.
        let mut key = identity.key();
        key.namespace.get_or_insert_with(|| "default".to_owned());
        if let Some(first) = self.seen.get(&key) {
            problems.push(Problem::Repeated { first: first.clone() });
        } else {
            self.seen.insert(key, location.clone());
        }

        if self.seen.len() > self.budget.objects {
            self.errors.push(Problem::TooManyObjects { limit: self.budget.objects }.into());
            self.stopped = true;
        } else if problems.is_empty() {
            self.objects.push(Object { identity, body, digest: canonical::checksum(&bytes) });
        } else {
            for problem in problems {
                self.report(&location, Some(&resource), problem);
            }
        }
    }

    fn report(&mut self, location: &Location, resource: Option<&str>, problem: Problem) {
        if self.errors.len() >= self.budget.problems {
            self.stopped = true;
            return;
        }
        self.errors.push(ManifestError {
            location: Some(location.clone()),
            resource: resource.map(str::to_owned),
            problem,
        });
    }

    fn finish(mut self) -> Result<Manifest, ManifestErrors> {
        if self.errors.is_empty() && self.objects.is_empty() {
            self.errors.push(Problem::Empty.into());
        }
        if self.errors.is_empty() {
            Ok(Manifest { objects: self.objects })
        } else {
            Err(ManifestErrors::new(self.errors, self.stopped))
        }
    }
}
