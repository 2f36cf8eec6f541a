//! Why an agent that was installed does not work yet: pure, from what is in its namespace.

use std::collections::BTreeMap;

use brokkr_install::ACCOUNT;
use brokkr_install::start::{self, Progress};
use serde_json::Value;

/// Where it stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The hop that is not passed.
    pub hop: String,
    pub reason: String,
    pub next: String,
    /// Whether waiting is of no use.
    pub for_good: bool,
}

/// What hints have to name.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Where the agent lives.
    pub namespace: &'a str,
    /// How it is installed once more.
    pub again: &'a str,
}

/// `found` are the agent's Deployment, Pods and ConfigMap. None while everything takes its course.
pub fn stuck(found: &[Value], place: Place<'_>) -> Option<Stuck> {
    let of_kind = |kind: &'static str| found.iter().filter(move |object| object["kind"] == kind);
    told_by_agent(of_kind("ConfigMap"), place)
        .or_else(|| of_kind("Pod").find_map(|found| pod(found, place.namespace)))
        .or_else(|| of_kind("Deployment").find_map(deployment))
}

/// What an account may not do, asked of the API server.
pub fn without_rights(account: &str, place: Place<'_>) -> Stuck {
    Stuck {
        hop: start::Hop::Rights.to_string(),
        reason: format!("{account} may not keep its key in its own namespace"),
        next: start::Hop::Rights.next(place.namespace, place.again),
        for_good: true,
    }
}

/// What the cluster does not let whoever runs kubectl do, each once, from what kubectl said.
pub fn forbidden(said: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in said.lines().filter(|line| line.contains("(Forbidden)")) {
        let reason = line.split_once("is forbidden: ").map_or(line, |(_, reason)| reason);
        let reason = reason.split_once("\" cannot ").map_or(reason, |(_, act)| act).trim().to_owned();
        if !found.contains(&reason) {
            found.push(reason);
        }
    }
    found
}

fn told_by_agent<'a>(mut maps: impl Iterator<Item = &'a Value>, place: Place<'_>) -> Option<Stuck> {
    let map = maps.find(|map| map["metadata"]["name"] == start::CONFIG_MAP)?;
    let data: BTreeMap<String, String> = serde_json::from_value(map["data"].clone()).ok()?;
    let Progress { hop, reason, .. } = Progress::of(&data)?;
    let next = hop.next(place.namespace, place.again);
    Some(Stuck { hop: hop.to_string(), reason, next, for_good: !hop.may_pass() })
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
            next: "make room for a Pod of 20m CPU and 64 MiB in the cluster".to_owned(),
            for_good: false,
        });
    }
    let container = &status["containerStatuses"][0];
    let waiting = &container["state"]["waiting"];
    let reason = waiting["reason"].as_str()?;
    let (hop, next) = match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            ("image", "give an image that the cluster's nodes can pull with --image".to_owned())
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
        for_good: false,
    })
}

fn deployment(deployment: &Value) -> Option<Stuck> {
    let conditions = deployment["status"]["conditions"].as_array()?;
    let refused =
        conditions.iter().find(|found| found["type"] == "ReplicaFailure" && found["status"] == "True")?;
    Some(Stuck {
        hop: "pod".to_owned(),
        reason: text(&refused["message"]),
        next: "let the agent's Pod into its namespace: a quota or a policy of the cluster refuses it"
            .to_owned(),
        for_good: false,
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLACE: Place<'static> = Place { namespace: "elsewhere", again: "run it again" };

    fn hop(found: Value) -> Option<String> {
        stuck(&[found], PLACE).map(|stuck| stuck.hop)
    }

    #[test]
    fn what_is_forbidden_is_told_once_and_in_short() {
        let said = "Warning: something\n\
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
        assert_eq!(forbidden(said), [patch, grant]);
        assert_eq!(forbidden("Unable to connect to the server"), [] as [&str; 0]);
    }

    #[test]
    fn what_the_agent_says_itself_counts_most() {
        let told = json!({"kind": "ConfigMap", "metadata": {"name": "brokkr-agent-start"}, "data": {
            "hop": "tls", "reason": "unknown issuer", "at": "2026-03-01T12:00:00Z",
        }});
        let pulling = json!({"kind": "Pod", "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "…"}}},
        ]}});
        let looked = stuck(std::slice::from_ref(&pulling), PLACE).unwrap();
        assert_eq!(looked.next, "kubectl -n elsewhere logs deployment/brokkr-agent --previous");
        let stuck = stuck(&[pulling, told], PLACE).unwrap();
        assert_eq!(
            (stuck.hop.as_str(), stuck.reason.as_str(), stuck.for_good),
            ("tls", "unknown issuer", true)
        );
        assert!(stuck.next.contains("--ca-file"));
    }

    #[test]
    fn a_pod_that_does_not_come_up_is_told() {
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
