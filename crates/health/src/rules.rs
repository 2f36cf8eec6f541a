//! Rules that are written as data: the built-in ones, and those of a file.

use std::sync::LazyLock;

use brokkr_api::health_rules::HealthRule;
use brokkr_manifest::order::is_built_in;

static BUILT_IN: LazyLock<Vec<HealthRule>> = LazyLock::new(|| {
    parse_rules(include_str!("rules.yaml"))
        .unwrap_or_else(|error| panic!("the built-in health rules are invalid: {error}"))
});

/// Returns the built-in rule for a kind.
pub(super) fn built_in(group: &str, kind: &str) -> Option<&'static HealthRule> {
    matching(&BUILT_IN, group, kind)
}

/// Returns the first rule for a kind.
pub(super) fn matching<'r>(rules: &'r [HealthRule], group: &str, kind: &str) -> Option<&'r HealthRule> {
    rules.iter().find(|rule| rule.matches(group, kind))
}

/// Parses a list of rules in YAML or JSON, and checks each of them.
#[expect(clippy::disallowed_methods, reason = "a rule is no manifest: it has no modes of files")]
pub fn parse_rules(text: &str) -> Result<Vec<HealthRule>, String> {
    let rules: Vec<HealthRule> = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    for rule in &rules {
        rule.check()?;
        if let Some(group) = rule.groups.iter().find(|group| is_built_in(group)) {
            return Err(format!("{rule}: the kinds of {group:?} have fixed rules; name custom kinds"));
        }
    }
    Ok(rules)
}

#[cfg(test)]
pub(super) fn all_built_in() -> &'static [HealthRule] {
    &BUILT_IN
}
