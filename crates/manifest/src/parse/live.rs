//! Parses objects as the API server returns them.

use serde_json::Value;
use serde_saphyr::Spanned;

use super::text;
use super::yaml::problem_of;
use crate::budget::Budget;
use crate::error::{Location, ManifestError, ManifestErrors, Problem};
use crate::identity::Identity;
use crate::shape;

/// Parses objects with their status, as `kubectl get -o yaml` prints them. Unlike [`parse`](super::parse), it refuses only
/// what is not an object, and changes nothing. Lists are flattened, empty documents skipped.
pub fn parse_live(bytes: &[u8], budget: &Budget) -> Result<Vec<(Identity, Value)>, ManifestErrors> {
    let text = text(bytes, budget).map_err(|problem| ManifestErrors::new(vec![problem.into()], true))?;
    let options = budget.yaml_options();
    let documents =
        serde_saphyr::from_multiple_with_options::<Spanned<Value>>(text, options).map_err(|error| {
            let (problem, line) = problem_of(&error);
            let location = Location { document: None, line, items: vec![] };
            ManifestErrors::new(vec![located(location, None, problem)], true)
        })?;
    let (mut objects, mut errors) = (vec![], vec![]);
    for (position, document) in documents.into_iter().enumerate() {
        let line = Some(document.referenced.line()).filter(|line| *line > 0);
        let location = Location { document: Some(position + 1), line, items: vec![] };
        add(document.value, location, &mut objects, &mut errors);
    }
    errors.truncate(budget.problems);
    if errors.is_empty() { Ok(objects) } else { Err(ManifestErrors::new(errors, false)) }
}

/// Adds an object, or the objects of a list.
fn add(
    mut value: Value,
    location: Location,
    objects: &mut Vec<(Identity, Value)>,
    errors: &mut Vec<ManifestError>,
) {
    if shape::is_list(&value) {
        let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) else { return };
        for (position, item) in items.into_iter().enumerate() {
            let mut location = location.clone();
            location.items.push(position + 1);
            add(item, location, objects, errors);
        }
        return;
    }
    match shape::identify(&value) {
        Ok(identity) => objects.push((identity, value)),
        Err(problems) => {
            let resource = shape::description(&value);
            errors.extend(
                problems.into_iter().map(|problem| located(location.clone(), resource.clone(), problem)),
            );
        }
    }
}

fn located(location: Location, resource: Option<String>, problem: Problem) -> ManifestError {
    ManifestError { location: Some(location), resource, problem }
}
