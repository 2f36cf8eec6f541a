//! Finds out whether the API server supports streaming lists, and in which version it serves a kind.

use std::time::Duration;

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use serde::de::DeserializeOwned;

use super::request::{Refusal, Source, within};
use crate::resource::{Kind, Served};

/// From this version on, streaming lists are on by default. They were on in 1.32 too, but off again in 1.33.
const STREAMING: (u32, u32) = (1, 34);

/// Returns whether the API server supports streaming lists.
pub async fn streams_lists(source: &Source) -> Result<bool, Refusal> {
    let Some(info) = ask::<Info>(&source.client, source.timing.answer, "/version").await? else {
        return Ok(false);
    };
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    Ok((number(&info.major), number(&info.minor)) >= STREAMING)
}

/// Returns the kind in a version that is served; `None` if there is none. Each request may take as long as `limit`.
pub async fn find(client: &Client, lost: &Kind, limit: Duration) -> Result<Option<Kind>, Refusal> {
    for version in versions(client, limit, &lost.group).await? {
        let path = match lost.group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let Some(list) = ask::<APIResourceList>(client, limit, &path).await? else { continue };
        let found = list
            .resources
            .into_iter()
            .find(|resource| resource.kind == lost.kind && !resource.name.contains('/'));
        if let Some(resource) = found {
            return Ok(Some(Kind::from(Served {
                group: lost.group.clone(),
                version,
                kind: resource.kind,
                plural: resource.name,
                namespaced: resource.namespaced,
            })));
        }
    }
    Ok(None)
}

/// Returns the served versions of a group, the preferred one first.
async fn versions(client: &Client, limit: Duration, group: &str) -> Result<Vec<String>, Refusal> {
    if group.is_empty() {
        return Ok(vec!["v1".into()]);
    }
    let Some(group) = ask::<APIGroup>(client, limit, &format!("/apis/{group}")).await? else {
        return Ok(Vec::new());
    };
    let preferred = group.preferred_version.map(|version| version.version);
    let mut versions: Vec<String> = group.versions.into_iter().map(|version| version.version).collect();
    versions.sort_by_key(|version| Some(version) != preferred.as_ref());
    Ok(versions)
}

async fn ask<T: DeserializeOwned>(
    client: &Client,
    limit: Duration,
    path: &str,
) -> Result<Option<T>, Refusal> {
    let request = Request::get(path).body(Vec::new()).map_err(Refusal::failed)?;
    within(limit, async {
        match client.request(request).await {
            Ok(answer) => Ok(Some(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(Refusal::failed(error)),
        }
    })
    .await
}
