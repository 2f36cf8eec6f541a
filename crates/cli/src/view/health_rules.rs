//! Health rules, as a file that `brokkr health rules set` reads.

use brokkr_api::health_rules::HealthRules;

use super::{RenderOptions, Show};

impl Show for HealthRules {
    fn text(&self, _: &RenderOptions) -> String {
        // Control characters are escaped by the format.
        serde_saphyr::to_string(&self.rules).unwrap_or_else(|_| self.to_json()).trim_end().to_owned()
    }

    fn names(&self) -> Vec<String> {
        self.rules.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::samples::rendered;
    use super::*;

    #[test]
    fn health_rules() {
        let rules: HealthRules = serde_json::from_value(json!({ "rules": [{
            "groups": ["shop.example.com"],
            "kinds": ["Widget"],
            "failed": [{ "field": "status.phase", "equals": "Broken", "message": "status.message" }],
            "ready": [{ "condition": "Ready" }],
        }] }))
        .unwrap();
        insta::assert_snapshot!(rendered(&rules));
        let text = serde_saphyr::to_string(&rules.rules).unwrap();
        assert_eq!(brokkr_health::parse_rules(&text), Ok(rules.rules), "what is shown can be set");
    }
}
