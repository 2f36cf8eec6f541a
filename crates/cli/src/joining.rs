//! Why an installed agent is not connected yet: derived from the objects in its namespace, without I/O.

use std::collections::BTreeMap;

use brokkr_install::ACCOUNT;
use brokkr_install::start::{self, Progress};
use serde_json::Value;

/// The step at which the installation is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The step that is not complete.
    pub hop: String,
    pub reason: String,
    pub next: String,
    /// Whether waiting cannot help.
    pub is_final: bool,
}

/// Values for the hints.
#[derive(Clone, Copy, Debug)]
pub struct HintContext<'a> {
    /// The namespace of the agent.
    pub namespace: &'a str,
    /// How to repeat the installation.
    pub again: &'a str,
}

/// Returns the step that is stuck, from the agent's Deployment, Pods and ConfigMap; none while there is progress.
pub fn stuck(found: &[Value], context: HintContext<'_>) -> Option<Stuck> {
    let of_kind = |kind: &'static str| found.iter().filter(move |object| object["kind"] == kind);
    reported_by_agent(of_kind("ConfigMap"), context)
        .or_else(|| of_kind("Pod").find_map(|found| pod(found, context.namespace)))
        .or_else(|| of_kind("Deployment").find_map(deployment))
}

/// Describes an account without permissions, as the API server reports it.
pub fn without_rights(account: &str, context: HintContext<'_>) -> Stuck {
    Stuck {
        hop: start::Hop::Rights.to_string(),
        reason: format!("{account} is not allowed to store its key in its own namespace"),
        next: start::Hop::Rights.advice(context.namespace, context.again),
        is_final: true,
    }
}

/// Returns the permissions that the user lacks, each once, from the error output of kubectl.
pub fn forbidden(output: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in output.lines().filter(|line| line.contains("(Forbidden)")) {
        let reason = line.split_once("is forbidden: ").map_or(line, |(_, reason)| reason);
        let reason = reason.split_once("\" cannot ").map_or(reason, |(_, act)| act).trim().to_owned();
        if !found.contains(&reason) {
            found.push(reason);
        }
    }
    found
}

fn reported_by_agent<'a>(
    mut maps: impl Iterator<Item = &'a Value>,
    context: HintContext<'_>,
) -> Option<Stuck> {
    let map = maps.find(|map| map["metadata"]["name"] == start::CONFIG_MAP)?;
    let data: BTreeMap<String, String> = serde_json::from_value(map["data"].clone()).ok()?;
    let Progress { hop, reason, .. } = Progress::from_data(&data)?;
    let next = hop.advice(context.namespace, context.again);
    Some(Stuck { hop: hop.to_string(), reason, next, is_final: !hop.may_recover() })
}

fn pod(pod: &Value, namespace: &str) -> Option<Stuck> {
    let status = &pod["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(unscheduled) =
        conditions.iter().find(|found| found["type"] == "PodScheduled" && found["status"] == "False")
    {
        return Some(Stuck {
            hop: "scheduling".to_owned(),
            reason: text(&unscheduled["message"]),
            next: "free resources for a Pod with 20m CPU and 64 MiB of memory".to_owned(),
            is_final: false,
        });
    }
    let container = &status["containerStatuses"][0];
    let waiting = &container["state"]["waiting"];
    let reason = waiting["reason"].as_str()?;
    let (hop, next) = match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            ("image", "set --image to an image that the cluster's nodes can pull".to_owned())
        }
        "CrashLoopBackOff" | "CreateContainerError" | "RunContainerError" | "CreateContainerConfigError" => {
            ("container", format!("kubectl -n {namespace} logs deployment/{ACCOUNT} --previous"))
        }
        _ => return None,
    };
    Some(Stuck {
        hop: hop.to_owned(),
        reason: format!("{reason}: {}", text(&waiting["message"])),
        next,
        is_final: false,
    })
}

fn deployment(deployment: &Value) -> Option<Stuck> {
    let conditions = deployment["status"]["conditions"].as_array()?;
    let refused =
        conditions.iter().find(|found| found["type"] == "ReplicaFailure" && found["status"] == "True")?;
    Some(Stuck {
        hop: "pod".to_owned(),
        reason: text(&refused["message"]),
        next: "allow the agent's Pod in its namespace: a quota or an admission policy refuses it".to_owned(),
        is_final: false,
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONTEXT: HintContext<'static> = HintContext { namespace: "elsewhere", again: "run it again" };

    fn hop(found: Value) -> Option<String> {
        stuck(&[found], CONTEXT).map(|stuck| stuck.hop)
    }

    #[test]
    fn missing_permissions_are_listed_once() {
        let output = "Warning: something\n\
            Error from server (Forbidden): clusterroles.rbac.authorization.k8s.io \"a\" is forbidden: User \"jo\" \
            cannot patch resource \"clusterroles\" in API group \"rbac.authorization.k8s.io\" at the cluster scope\n\
            Error from server (Forbidden): clusterroles.rbac.authorization.k8s.io \"b\" is forbidden: User \"jo\" \
            cannot patch resource \"clusterroles\" in API group \"rbac.authorization.k8s.io\" at the cluster scope\n\
            Error from server (Forbidden): roles \"c\" is forbidden: user \"jo\" is attempting to grant RBAC \
            permissions not currently held:\n{APIGroups:[\"\"]}\n\
            Error from server (NotFound): namespaces \"elsewhere\" not found";
        let patch =
            "patch resource \"clusterroles\" in API group \"rbac.authorization.k8s.io\" at the cluster scope";
        let grant = "user \"jo\" is attempting to grant RBAC permissions not currently held:";
        assert_eq!(forbidden(output), [patch, grant]);
        assert_eq!(forbidden("Unable to connect to the server"), [] as [&str; 0]);
    }

    #[test]
    fn the_agents_own_report_takes_precedence() {
        let reported = json!({"kind": "ConfigMap", "metadata": {"name": "brokkr-agent-start"}, "data": {
            "hop": "tls", "reason": "unknown issuer", "at": "2026-03-01T12:00:00Z",
        }});
        let crashing = json!({"kind": "Pod", "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "…"}}},
        ]}});
        let from_pod = stuck(std::slice::from_ref(&crashing), CONTEXT).unwrap();
        assert_eq!(from_pod.next, "kubectl -n elsewhere logs deployment/brokkr-agent --previous");
        let stuck = stuck(&[crashing, reported], CONTEXT).unwrap();
        assert_eq!(
            (stuck.hop.as_str(), stuck.reason.as_str(), stuck.is_final),
            ("tls", "unknown issuer", true)
        );
        assert!(stuck.next.contains("--ca-file"));
    }

    #[test]
    fn a_pod_that_does_not_start_is_reported() {
        let waiting = |reason: &str| json!({"kind": "Pod", "status": {"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}});
        assert_eq!(hop(waiting("ImagePullBackOff")).as_deref(), Some("image"));
        assert_eq!(hop(waiting("CrashLoopBackOff")).as_deref(), Some("container"));
        assert_eq!(hop(waiting("ContainerCreating")), None);
        let condition = |kind: &str, of: &str, status: &str| {
            json!({"kind": kind, "status": {"conditions": [
                {"type": of, "status": status, "message": "no"},
            ]}})
        };
        assert_eq!(hop(condition("Pod", "PodScheduled", "False")).as_deref(), Some("scheduling"));
        assert_eq!(hop(condition("Pod", "PodScheduled", "True")), None);
        assert_eq!(hop(condition("Deployment", "ReplicaFailure", "True")).as_deref(), Some("pod"));
        assert_eq!(hop(condition("Deployment", "Available", "False")), None);
    }
}
