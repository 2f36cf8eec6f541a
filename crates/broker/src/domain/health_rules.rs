//! Which health rules are accepted.

use brokkr_api::health_rules::HealthRules;
use brokkr_manifest::order::is_built_in;

/// Checks rules before they are stored. Returns what is wrong.
pub fn check(rules: &HealthRules) -> Result<(), String> {
    rules.check()?;
    let fixed = rules.rules.iter().find_map(|rule| {
        let group = rule.groups.iter().find(|group| is_built_in(group))?;
        Some(format!("{rule}: the kinds of {group:?} have fixed rules; name custom kinds"))
    });
    fixed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn f6_rules_are_for_custom_kinds_and_each_of_them_is_checked() {
        let rules = |group: &str, ready: serde_json::Value| {
            let rule = json!({ "groups": [group], "kinds": ["Widget"], "ready": ready });
            check(&serde_json::from_value(json!({ "rules": [rule] })).unwrap())
        };
        let ready = json!([{ "condition": "Ready" }]);
        assert_eq!(rules("shop.example.com", ready.clone()), Ok(()));
        assert!(rules("apps", ready).unwrap_err().contains("have fixed rules"));
        assert!(rules("shop.example.com", json!([])).is_err(), "an object without status would be ready");
        assert_eq!(check(&HealthRules::default()), Ok(()));
    }
}
