//! The start of the agent: it waits for the broker and the API server. What it waits for is written to the
//! cluster, where `brokkr agent join` reads it (see [`brokkr_install::start`]).

use std::time::Duration;

use brokkr_client::{ClientError, Stage};
use brokkr_install::ACCOUNT;
use brokkr_install::start::{CONFIG_MAP, Hop, Progress};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};

use crate::admin::Admin;
use crate::backoff::Backoff;
use crate::own_objects::with_deadline;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(15));

pub struct Start {
    maps: Api<ConfigMap>,
    admin: Admin,
}

impl Start {
    #[must_use]
    pub fn new(client: &Client, namespace: &str, admin: Admin) -> Self {
        Self { maps: Api::namespaced(client.clone(), namespace), admin }
    }

    /// Retries until the attempt succeeds. An error that does not show at which hop it occurred (name lookup,
    /// connection, TLS, …) is attributed to `step`.
    pub async fn retry_until_done<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        step: Hop,
        what: &'static str,
        attempt: impl Fn() -> F,
    ) -> T {
        self.admin.starting(what);
        let mut failures = 0;
        loop {
            let pause;
            match attempt().await {
                Ok(done) => return done,
                Err(error) => {
                    failures += 1;
                    pause = BACKOFF.delay(failures);
                    let hop = hop(&error, step);
                    let reason = one_line(&error);
                    tracing::warn!(stage = %hop, "failed to {what}: {reason}; retrying in {pause:?}");
                    self.publish(Progress { hop, reason, at: Timestamp::now() }).await;
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Deletes the start status, if there is one.
    pub async fn done(&self) {
        // Read first: a start without problems writes nothing.
        let left = match with_deadline(self.maps.get_opt(CONFIG_MAP)).await {
            Ok(None) => return,
            Ok(Some(_)) => {
                with_deadline(self.maps.delete(CONFIG_MAP, &DeleteParams::default())).await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = left {
            tracing::debug!(%error, "failed to delete the start status ConfigMap");
        }
    }

    async fn publish(&self, progress: Progress) {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(CONFIG_MAP.to_owned()),
                labels: Some([("app.kubernetes.io/name".to_owned(), ACCOUNT.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(progress.data()),
            ..ConfigMap::default()
        };
        let written =
            match with_deadline(self.maps.patch(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(&map)))
                .await
            {
                Err(error) if error.is(404) => {
                    with_deadline(self.maps.create(&PostParams::default(), &map)).await
                }
                other => other,
            };
        if let Err(error) = written {
            tracing::debug!(%error, "failed to write the start status ConfigMap");
        }
    }
}

/// Returns the hop at which the start failed; `otherwise` if the error does not show it.
fn hop(error: &anyhow::Error, otherwise: Hop) -> Hop {
    let hop = error.chain().find_map(|cause| {
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return Some(at_broker(error));
        }
        cause.downcast_ref::<kube::Error>().map(|_| Hop::Rights)
    });
    hop.unwrap_or(otherwise)
}

/// Returns the error with its causes, without repetitions.
#[must_use]
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    line
}

fn at_broker(error: &ClientError) -> Hop {
    match error {
        ClientError::Unreachable { source, proxy, .. } => match source.stage {
            Stage::Tls => Hop::Tls,
            Stage::Clock => Hop::Clock,
            Stage::Proxy => Hop::Proxy,
            Stage::Name | Stage::Connect | Stage::Exchange if proxy.is_some() => Hop::Proxy,
            Stage::Name => Hop::Dns,
            Stage::Connect | Stage::Exchange => Hop::Connect,
        },
        ClientError::Timeout { .. } => Hop::Connect,
        ClientError::InvalidResponse { .. } => Hop::Answer,
        ClientError::Problem { problem, .. } if problem.code.is_transient() => Hop::Answer,
        ClientError::Problem { .. } | ClientError::Unsendable { .. } => Hop::Token,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};
    use brokkr_client::TransportError;

    use super::*;

    fn unreachable(stage: Stage, proxy: Option<&str>) -> anyhow::Error {
        let source = TransportError { reason: "refused".to_owned(), stage, certificate: false };
        let url = "https://brokkr.example/".parse().unwrap();
        let error = ClientError::Unreachable {
            url,
            source,
            proxy: proxy.map(ToOwned::to_owned),
            after: Duration::ZERO,
        };
        Err::<(), _>(error).context("join the broker").unwrap_err()
    }

    #[test]
    fn the_hop_is_the_one_that_the_innermost_error_names() {
        for (stage, hop_without, hop_behind_a_proxy) in [
            (Stage::Name, Hop::Dns, Hop::Proxy),
            (Stage::Connect, Hop::Connect, Hop::Proxy),
            (Stage::Exchange, Hop::Connect, Hop::Proxy),
            (Stage::Proxy, Hop::Proxy, Hop::Proxy),
            (Stage::Tls, Hop::Tls, Hop::Tls),
            (Stage::Clock, Hop::Clock, Hop::Clock),
        ] {
            assert_eq!(hop(&unreachable(stage, None), Hop::Token), hop_without);
            assert_eq!(hop(&unreachable(stage, Some("proxy:3128")), Hop::Token), hop_behind_a_proxy);
        }
        assert_eq!(hop(&anyhow!("no fence is active"), Hop::Fence), Hop::Fence);
        let line = one_line(&unreachable(Stage::Connect, None));
        assert_eq!(line, "join the broker: cannot reach https://brokkr.example/: refused");
    }
}
