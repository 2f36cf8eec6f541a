//! Credentials: the API server's token file, and tokens of service accounts.

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;

/// A day, which is longer than any test, so that tokens do not expire by accident.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// Users in the token file. Each engine has its own, so that the audit log distinguishes them from tests.
pub(super) const ADMIN: &str = "admin";
pub(super) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub(super) const SCHEDULER: &str = "kube-scheduler";
pub(super) const KWOK: &str = "kwok";
pub(super) const KUBELET: &str = "kubelet";

/// Returns the token of a user in the token file. It is not a secret: the server is reachable only on this
/// machine and exists for one test run.
pub(super) fn token(user: &str) -> String {
    format!("token-of-{user}")
}

/// Returns the token file: `token,user,uid,"groups"`.
pub(super) fn token_file() -> String {
    [ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK, KUBELET]
        .map(|user| format!("{},{user},{user},\"system:masters\"\n", token(user)))
        .concat()
}

/// Requests a token for a service account from the API server.
pub(super) async fn service_account_token(
    admin: kube::Client,
    namespace: &str,
    account: &str,
) -> Result<String> {
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, namespace);
    let answer = accounts
        .create_token_request(account, &kube::api::PostParams::default(), &request)
        .await
        .with_context(|| format!("cannot get a token for the service account {namespace}/{account}"))?;
    Ok(answer.status.context("the token request was answered without a token")?.token)
}
