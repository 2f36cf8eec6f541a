//! Which record of a stack counts, if there are two.
//!
//! That happens while a record that someone deleted is copied to its other name, or after a crash in
//! between.

use kube::api::DynamicObject;

use super::wire::age;

/// Returns the record to keep, and the others. One that is being deleted counts only if there is no other.
pub fn choose(mut objects: Vec<DynamicObject>) -> Option<(DynamicObject, Vec<DynamicObject>)> {
    objects.sort_by_key(|object| (!is_deleting(object), age(object)));
    let chosen = objects.pop()?;
    Some((chosen, objects))
}

#[must_use]
pub fn is_deleting(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;

    fn record(name: &str, session: i64, sequence: i64, leaving: bool) -> DynamicObject {
        let mut object = json!({
            "metadata": {"name": name}, "spec": {"session": session, "sequence": sequence},
        });
        if leaving {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(object).unwrap()
    }

    fn chosen(objects: Vec<DynamicObject>) -> String {
        choose(objects).unwrap().0.name_any()
    }

    #[test]
    fn e5_what_stays_counts_before_what_leaves_and_then_the_newer() {
        assert!(choose(Vec::new()).is_none());
        let (old, new) = (record("old", 3, 9, false), record("new", 4, 7, false));
        assert_eq!(chosen(vec![new, old.clone()]), "new");
        assert_eq!(chosen(vec![old.clone(), record("newer", 3, 10, false)]), "newer");
        let leaving = record("leaving", 5, 11, true);
        assert_eq!(chosen(vec![leaving.clone(), old]), "old");
        let (alone, others) = choose(vec![leaving]).unwrap();
        assert_eq!((alone.name_any().as_str(), others.len()), ("leaving", 0));
    }
}
