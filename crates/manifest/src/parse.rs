//! Bytes to objects, with every problem collected rather than the first.
//!
//! A good manifest is read once. One whose YAML is broken is read a second time, document by document, because
//! only that reading recovers at the next `---` and so finds the problems of the later documents, too.

use std::collections::HashMap;

use serde_json::Value;
use serde_saphyr::Spanned;

use crate::budget::Budget;
use crate::error::{ManifestError, ManifestErrors, Place, Problem};
use crate::identity::Key;
use crate::parse::yaml::problem_of;
use crate::{Manifest, Object, canonical, normal, order, refuse, shape, yields};

mod yaml;

/// Reads a manifest: one or more YAML documents (JSON is YAML, too), lists flattened, empty documents skipped.
pub fn parse(bytes: &[u8], budget: &Budget) -> Result<Manifest, ManifestErrors> {
    let text = text(bytes, budget).map_err(|problem| ManifestErrors::new(vec![problem.into()], true))?;
    let mut reading = Reading::new(budget);
    match serde_saphyr::from_multiple_with_options::<Spanned<Value>>(text, budget.yaml_options()) {
        Ok(documents) => {
            for document in documents {
                reading.document(document);
                if reading.stopped {
                    break;
                }
            }
        }
        Err(error) => read_again(text, &error, &mut reading),
    }
    reading.finish()
}

fn text<'a>(bytes: &'a [u8], budget: &Budget) -> Result<&'a str, Problem> {
    if bytes.len() > budget.total_bytes {
        return Err(Problem::TooLarge { bytes: bytes.len(), limit: budget.total_bytes });
    }
    std::str::from_utf8(bytes).map_err(|error| Problem::NotUtf8 { offset: error.valid_up_to() })
}

/// The second reading, after the first one met `first`.
fn read_again(text: &str, first: &serde_saphyr::Error, reading: &mut Reading<'_>) {
    let (problem, line) = problem_of(first);
    let unplaced =
        ManifestError { place: Some(Place { document: None, line, items: vec![] }), resource: None, problem };
    // Never read on after a bomb: the budget of the second reading is per document, and there can be many.
    if matches!(unplaced.problem, Problem::OverBudget { .. }) {
        reading.errors.push(unplaced);
        reading.stopped = true;
        return;
    }

    let mut found_one = false;
    let mut bytes = text.as_bytes();
    let options = reading.budget.yaml_options_without_aliases();
    for document in serde_saphyr::read_with_options::<_, Spanned<Value>>(&mut bytes, options) {
        match document {
            Ok(document) => reading.document(document),
            Err(error) => {
                let (problem, line) = problem_of(&error);
                if matches!(problem, Problem::OverBudget { .. }) {
                    reading.stopped = true;
                    break;
                }
                found_one = true;
                reading.broken_document(problem, line);
            }
        }
        if reading.stopped {
            break;
        }
    }
    // The second reading may have ended before the place where the first one failed.
    if !found_one {
        reading.errors.push(unplaced);
        reading.stopped = true;
    }
}

/// What has been read so far.
struct Reading<'a> {
    budget: &'a Budget,
    documents: usize,
    objects: Vec<Object>,
    seen: HashMap<Key, Place>,
    errors: Vec<ManifestError>,
    /// Set when reading on would only cost time.
    stopped: bool,
}

impl<'a> Reading<'a> {
    fn new(budget: &'a Budget) -> Self {
        Self { budget, documents: 0, objects: vec![], seen: HashMap::new(), errors: vec![], stopped: false }
    }

    fn document(&mut self, document: Spanned<Value>) {
        self.documents += 1;
        let line = Some(document.referenced.line()).filter(|line| *line > 0);
        self.value(document.value, Place { document: Some(self.documents), line, items: vec![] });
    }

    fn broken_document(&mut self, problem: Problem, line: Option<u64>) {
        self.documents += 1;
        let place = Place { document: Some(self.documents), line, items: vec![] };
        // The reader cannot find the next document after broken syntax.
        self.stopped |= matches!(problem, Problem::Syntax { .. });
        self.report(&place, None, problem);
    }

    /// An object, or a list of them; lists within lists occur when people paste outputs together.
    fn value(&mut self, mut value: Value, place: Place) {
        if self.stopped {
            return;
        }
        if !shape::is_list(&value) {
            return self.object(value, place);
        }
        match value.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => {
                for (position, item) in items.into_iter().enumerate() {
                    let mut place = place.clone();
                    place.items.push(position + 1);
                    self.value(item, place);
                }
            }
            Some(Value::Null) => {}
            Some(_) => self.report(
                &place,
                Some("List"),
                Problem::Malformed { field: "items".into(), rule: "a sequence" },
            ),
            None => self.report(&place, Some("List"), Problem::Missing { field: "items" }),
        }
    }

    fn object(&mut self, mut body: Value, place: Place) {
        let identity = match shape::identify(&body) {
            Ok(identity) => identity,
            Err(problems) => {
                let resource = shape::description(&body);
                for problem in problems {
                    self.report(&place, resource.as_deref(), problem);
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
        let key = identity.key();
        if let Some(first) = self.seen.get(&key) {
            problems.push(Problem::Repeated { first: first.clone() });
        } else {
            self.seen.insert(key, place.clone());
        }

        if self.seen.len() > self.budget.objects {
            self.errors.push(Problem::TooManyObjects { limit: self.budget.objects }.into());
            self.stopped = true;
        } else if problems.is_empty() {
            self.objects.push(Object { identity, body, digest: canonical::checksum(&bytes) });
        } else {
            for problem in problems {
                self.report(&place, Some(&resource), problem);
            }
        }
    }

    fn report(&mut self, place: &Place, resource: Option<&str>, problem: Problem) {
        if self.errors.len() >= self.budget.problems {
            self.stopped = true;
            return;
        }
        self.errors.push(ManifestError {
            place: Some(place.clone()),
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
