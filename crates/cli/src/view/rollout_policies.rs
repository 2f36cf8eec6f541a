//! How new versions are rolled out.

use std::time::Duration;

use brokkr_api::rollouts::{RolloutPolicies, RolloutPolicy};

use super::course::size;
use super::text::fields;
use super::{RenderOptions, Show};

impl Show for RolloutPolicies {
    fn text(&self, _: &RenderOptions) -> String {
        fields([
            ("installation", policy(&self.installation)),
            ("project", policy(&self.project)),
            ("stack", policy(&self.stack)),
            ("in effect", policy(&self.effective)),
        ])
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// `waves 1, 10%, 100%; soak 10m`, or `-` if nothing is set.
fn policy(policy: &RolloutPolicy) -> String {
    let waves = policy.waves.as_ref().map(|waves| waves.iter().map(size).collect::<Vec<_>>().join(", "));
    let soak = policy.soak_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let parts = [
        (policy.staged == Some(false)).then(|| "all agents at once".to_owned()),
        waves.map(|waves| format!("waves {waves}")),
        policy.max_in_flight.map(|share| format!("at most {share} in flight")),
        policy.max_bad_percent.map(|percent| format!("stop above {percent}% bad")),
        policy.min_healthy_percent.map(|percent| format!("go on at {percent}% healthy")),
        soak.map(|soak| format!("soak {}", humantime::format_duration(soak))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use brokkr_api::rollouts::{Gate, Share, Wave};
    use brokkr_api::tokens::Role;

    use super::super::samples::rendered;
    use super::*;

    #[test]
    fn rollout_policies() {
        let gate = Gate { approvals: 1, role: Role::Owner, not_author: true, timeout_seconds: None };
        let canary = Wave { selector: "ring=0".parse().ok(), ..Wave::of(Share::ALL) };
        let rest = Wave { gate: Some(gate), ..Wave::of(Share::ALL) };
        let policies = RolloutPolicies {
            installation: RolloutPolicy { soak_seconds: Some(600), ..RolloutPolicy::default() },
            project: RolloutPolicy { staged: Some(false), ..RolloutPolicy::default() },
            stack: RolloutPolicy {
                waves: Some(vec![canary.clone(), rest.clone()]),
                ..RolloutPolicy::default()
            },
            effective: RolloutPolicy {
                staged: Some(true),
                waves: Some(vec![canary, rest]),
                max_in_flight: Some(Share::Percent(10)),
                max_bad_percent: Some(2),
                min_healthy_percent: Some(95),
                soak_seconds: Some(600),
            },
        };
        insta::assert_snapshot!(rendered(&policies));
    }
}
