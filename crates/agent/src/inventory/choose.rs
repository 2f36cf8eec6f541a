//! Chooses the valid record of a stack, if there are two.
//!
//! Before a record that another client deletes is gone, it is copied under another name (`wire::other_name`).
//! Until the first one is gone, there are two, also after a crash in between.

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

    fn record(name: &str, session: i64, sequence: i64, deleting: bool) -> DynamicObject {
        let mut object = json!({
            "metadata": {"name": name}, "spec": {"session": session, "sequence": sequence},
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(object).unwrap()
    }

    fn chosen(objects: Vec<DynamicObject>) -> String {
        choose(objects).unwrap().0.name_any()
    }

    #[test]
    fn e5_a_record_that_is_not_being_deleted_is_chosen_first_and_then_the_newer_one() {
        assert!(choose(Vec::new()).is_none());
        let (old, new) = (record("old", 3, 9, false), record("new", 4, 7, false));
        assert_eq!(chosen(vec![new, old.clone()]), "new");
        assert_eq!(chosen(vec![old.clone(), record("newer", 3, 10, false)]), "newer");
        let deleting = record("deleting", 5, 11, true);
        assert_eq!(chosen(vec![deleting.clone(), old]), "old");
        let (alone, others) = choose(vec![deleting]).unwrap();
        assert_eq!((alone.name_any().as_str(), others.len()), ("deleting", 0));
    }
}
