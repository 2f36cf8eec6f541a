//! Helm hooks in rendered charts.
//!
//! Hooks that run before or after an install or upgrade are steps of the delivery. All others, such as tests, are left out.

use crate::Object;
use crate::order::{Rank, rank};

/// The annotation with the events of a hook.
pub const HOOK: &str = "helm.sh/hook";
const WEIGHT: &str = "helm.sh/hook-weight";
const DELETE_POLICY: &str = "helm.sh/hook-delete-policy";

/// What becomes of an object with a hook annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookUse {
    Step(Hook),
    /// It is not applied. Contains the events, as the chart names them.
    LeftOut(String),
}

/// A hook that is a step of the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Lower weights come first.
    pub weight: i64,
    /// When it runs in the first delivery of the stack, if at all.
    pub install: Option<Side>,
    /// The same for later deliveries.
    pub upgrade: Option<Side>,
    /// It is deleted at the end of the delivery.
    pub delete_when_complete: bool,
    /// If it is a Job, it is deleted when it has failed.
    pub delete_when_failed: bool,
}

/// Whether a hook runs before the other objects are applied, or after they are healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// Returns what becomes of an object, if it is a hook. Namespaces and definitions are applied like any other.
pub fn hook_of(object: &Object) -> Option<HookUse> {
    let events = object.annotation(HOOK)?.trim();
    if events.is_empty() || rank(&object.identity) == Rank::Priority {
        return None;
    }
    let has = |event: &str| words(events).any(|word| word == event);
    // One that runs both before and after would have to run twice.
    let side = |before: &str, after: &str| match (has(before), has(after)) {
        (true, false) => Ok(Some(Side::Before)),
        (false, true) => Ok(Some(Side::After)),
        (false, false) => Ok(None),
        (true, true) => Err(()),
    };
    let sides = (side("pre-install", "post-install"), side("pre-upgrade", "post-upgrade"));
    // Only of a Job, Kubernetes says that it is complete, also after a restart of its node.
    let is_bare_pod = object.identity.group.is_empty() && object.identity.kind == "Pod";
    let ((Ok(install), Ok(upgrade)), false) = (sides, is_bare_pod) else {
        return Some(HookUse::LeftOut(events.to_owned()));
    };
    if install.is_none() && upgrade.is_none() {
        return Some(HookUse::LeftOut(events.to_owned()));
    }
    let policies = object.annotation(DELETE_POLICY).unwrap_or_default();
    let deletes = |policy: &str| words(policies).any(|word| word == policy);
    Some(HookUse::Step(Hook {
        // Like Helm, which ignores a weight that is no number.
        weight: object.annotation(WEIGHT).and_then(|weight| weight.trim().parse().ok()).unwrap_or(0),
        install,
        upgrade,
        delete_when_complete: deletes("hook-succeeded"),
        delete_when_failed: deletes("hook-failed"),
    }))
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, parse};

    fn of(kind: &str, annotations: &[(&str, &str)]) -> Option<HookUse> {
        let annotations: String =
            annotations.iter().map(|(key, value)| format!("    {key}: '{value}'\n")).collect();
        let version = if kind == "Job" { "batch/v1" } else { "v1" };
        let text = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: a\n  annotations:\n    team: shop\n{annotations}"
        );
        let manifest = parse(text.as_bytes(), &Budget::default()).expect("a manifest");
        hook_of(&manifest.objects[0])
    }

    fn step(kind: &str, annotations: &[(&str, &str)]) -> Hook {
        match of(kind, annotations) {
            Some(HookUse::Step(hook)) => hook,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hooks_of_install_and_upgrade_are_steps() {
        assert_eq!(of("Job", &[]), None);
        let both = step("Job", &[(HOOK, "pre-install, pre-upgrade"), (WEIGHT, "-5")]);
        let weight = -5;
        let before = Some(Side::Before);
        let (delete_when_complete, delete_when_failed) = (false, false);
        let expected =
            Hook { weight, install: before, upgrade: before, delete_when_complete, delete_when_failed };
        assert_eq!(both, expected);
        let after = step("ConfigMap", &[(HOOK, "post-upgrade"), (WEIGHT, "soon")]);
        assert_eq!((after.weight, after.install, after.upgrade), (0, None, Some(Side::After)));
        let mixed = step("Job", &[(HOOK, "pre-upgrade,post-install")]);
        assert_eq!((mixed.install, mixed.upgrade), (Some(Side::After), before));
        let with_test = step("Job", &[(HOOK, "test,post-install")]);
        assert_eq!(with_test.install, Some(Side::After));
    }

    #[test]
    fn delete_policies_are_read() {
        let policy = |policy: &str| {
            let hook = step("Job", &[(HOOK, "pre-install"), (DELETE_POLICY, policy)]);
            (hook.delete_when_complete, hook.delete_when_failed)
        };
        assert_eq!(policy("before-hook-creation"), (false, false));
        assert_eq!(policy("before-hook-creation,hook-succeeded"), (true, false));
        assert_eq!(policy("hook-succeeded, hook-failed"), (true, true));
    }

    #[test]
    fn other_hooks_are_left_out() {
        let left_out = |kind: &str, events: &str| matches!(of(kind, &[(HOOK, events)]), Some(HookUse::LeftOut(named)) if named == events);
        for events in ["test", "test-success", "pre-delete", "post-delete", "pre-rollback", "crd-install"] {
            assert!(left_out("Job", events), "{events}");
        }
        assert!(left_out("Job", "pre-install,post-install"), "it would run twice");
        assert!(left_out("Pod", "pre-install"), "only Jobs run to completion");
        assert_eq!(of("Namespace", &[(HOOK, "pre-install")]), None);
        assert_eq!(of("Job", &[(HOOK, " ")]), None);
    }
}
