//! The versions of a stack.

use brokkr_api::objects::DeploymentObject;
use jiff::Timestamp;

use super::table::Table;
use super::text::age;

pub fn list(objects: &[DeploymentObject], now: Timestamp) -> String {
    if objects.is_empty() {
        return "nothing was submitted yet".to_owned();
    }
    let mut objects: Vec<&DeploymentObject> = objects.iter().collect();
    objects.sort_by_key(|object| std::cmp::Reverse(object.sequence_id));
    let mut table = Table::new(&["SEQUENCE", "AGE", "BY", "RESOURCES", "CHECKSUM"]);
    for object in objects {
        let (resources, checksum) = if object.is_deletion_marker {
            ("deletion".to_owned(), "-".to_owned())
        } else {
            (object.resources.to_string(), short_checksum(object))
        };
        table.row([
            object.sequence_id.to_string(),
            age(object.created_at, now),
            object.submitted_by.clone(),
            resources,
            checksum,
        ]);
    }
    table.print()
}

/// Enough of it to tell versions apart.
pub fn short_checksum(object: &DeploymentObject) -> String {
    object.checksum.to_string().chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{now, object};
    use super::*;

    #[test]
    fn history() {
        let mut marker = object(43);
        marker.is_deletion_marker = true;
        insta::assert_snapshot!(list(&[object(41), object(42), marker], now()));
    }
}
