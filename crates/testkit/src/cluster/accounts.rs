//! Credentials: the API server's token file, and tokens of service accounts.

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;

/// A day, which is longer than any test, so that tokens do not expire by accident.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// Users of the token file. Each engine has its own, so that the audit log distinguishes them from tests.
pub(super) const ADMIN: &str = "admin";
pub(super) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub(super) const SCHEDULER: &str = "kube-scheduler";
pub(super) const KWOK: &str = "kwok";

/// The token of a user of the token file. No secret: the server listens on the loopback address only and
/// lives for one test run.
pub(super) fn token(user: &str) -> String {
    format!("token-of-{user}")
}

/// The token file: `token,user,uid,"groups"`.
pub(super) fn token_file() -> String {
    [ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK]
        .map(|user| format!("{},{user},{user},\"system:masters\"\n", token(user)))
        .concat()
}

/// Asks the API server for a token of a service account.
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
