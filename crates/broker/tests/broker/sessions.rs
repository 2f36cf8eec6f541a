//! Sessions of the console: opened with a token, authenticated by a cookie, and ended in time.

mod console_only;
mod ending;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::sessions::{ConsoleSession, SessionDetails};
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_broker::access::secret::{Secret, SecretKind};
use reqwest::{Method, Response};

use crate::harness::{Caller, Harness, as_console, read, refused, session_secret, with_cookie};

/// Sends the request with which the console signs in.
async fn sign_in(caller: &Caller) -> Result<Response> {
    Ok(caller.request(Method::POST, "sessions").header(header::CONSOLE, "1").send().await?)
}

/// Returns a secret of a session that nobody has opened.
fn made_up() -> String {
    Secret::generate(SecretKind::Session).expose().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_the_rights_of_its_token_and_its_secret_is_only_in_a_strict_cookie() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.project("shop", Role::Viewer).await?;
    let response = sign_in(&viewer).await?;
    assert_eq!(response.status(), 201);
    let secret = session_secret(&response)?;
    let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().collect();
    let attributes = "Secure; HttpOnly; SameSite=Strict; Path=/";
    assert_eq!(cookies, [&format!("__Host-brokkr={secret}; {attributes}")]);
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert!(response.headers().keys().all(|name| !name.as_str().starts_with("access-control-")));
    let text = response.text().await?;
    assert!(!text.contains(&secret) && !text.contains("brs_"));
    let opened: SessionDetails = serde_json::from_str(&text)?;
    let token: WhoAmI = viewer.get_json("whoami").await?;
    let session = &opened.session;
    assert_eq!(
        (session.token_id, session.name.as_str(), session.role),
        (token.token_id, "test", Role::Viewer)
    );
    assert_eq!((session.project.as_str(), &opened.projects[..]), ("shop", &["shop".to_owned()][..]));
    let lasts = session.expires_at.duration_since(session.created_at).as_secs();
    assert_eq!((lasts, session.idle_at.duration_since(session.created_at).as_secs()), (12 * 3600, 3600));

    let console = viewer.with_token(secret.clone());
    assert_eq!(console.get_json::<WhoAmI>("whoami").await?, token);
    let current = console.get("sessions/current").await?;
    assert_eq!(current.headers()["cache-control"], "no-store");
    assert_eq!(current.headers()["x-content-type-options"], "nosniff");
    assert_eq!(current.headers()["cross-origin-resource-policy"], "same-origin");
    assert_eq!(read::<SessionDetails>(current).await?, opened);
    let changed = console.request(Method::PUT, "stacks/web").body("{}").send().await?;
    assert_eq!(refused(changed).await?, ErrorCode::BRK1002, "not more than its token");

    let mut connection = harness.database.connect().await?;
    let stored: String =
        sqlx::query_scalar("SELECT to_jsonb(s)::text FROM sessions s").fetch_one(&mut connection).await?;
    assert!(!stored.contains("brs_"), "{stored}");
    let hash: Vec<u8> = sqlx::query_scalar("SELECT hash FROM sessions").fetch_one(&mut connection).await?;
    let known = Secret::read(SecretKind::Session, &secret).context("it is well-formed")?;
    assert_eq!(hash, known.hash());
    Ok(())
}

/// Fixation: an attacker who has placed a session of its own in a browser gains nothing when somebody signs in there.
#[tokio::test(flavor = "multi_thread")]
async fn each_sign_in_opens_a_new_session_and_one_that_the_client_brings_is_never_adopted() -> Result<()> {
    let harness = Harness::open().await?;
    let (made_up, placed) = (made_up(), session_secret(&sign_in(&harness.admin).await?)?);
    let mut seen = vec![made_up.clone(), placed.clone()];
    for brought in [&made_up, &placed, &placed] {
        let request = harness.admin.request(Method::POST, "sessions").header(header::CONSOLE, "1");
        let opened = with_cookie(request, brought).send().await?.error_for_status()?;
        let secret = session_secret(&opened)?;
        assert!(!seen.contains(&secret), "a session was used again");
        seen.push(secret);
    }
    let brought = harness.admin.with_token(made_up);
    assert_eq!(refused(brought.get("whoami").await?).await?, ErrorCode::BRK1001);
    // Not even a repeated request gets the same session, because only the first response has the cookie.
    let repeated = || {
        let request = harness.admin.request(Method::POST, "sessions").header(header::CONSOLE, "1");
        request.header(header::IDEMPOTENCY_KEY, "once").send()
    };
    assert_ne!(session_secret(&repeated().await?)?, session_secret(&repeated().await?)?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_token_opens_a_session() -> Result<()> {
    let harness = Harness::open().await?;
    let console = harness.admin.sign_in().await?;
    let again = console.request(Method::POST, "sessions").send().await?;
    assert_eq!(refused(again).await?, ErrorCode::BRK1002, "otherwise it would never end");
    let anyone = harness.without_credential();
    assert_eq!(refused(sign_in(&anyone).await?).await?, ErrorCode::BRK1001);
    let secret = session_secret(&sign_in(&harness.admin).await?)?;
    let as_bearer = anyone.request(Method::GET, "whoami").bearer_auth(&secret).send().await?;
    assert_eq!(refused(as_bearer).await?, ErrorCode::BRK1001, "a session is valid only in the cookie");
    let token = harness.with_role(Role::Viewer).await?;
    assert!(token.get_json::<Page<ConsoleSession>>("sessions").await?.items.is_empty(), "it has opened none");
    assert_eq!(refused(token.get("sessions/current").await?).await?, ErrorCode::BRK2001);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_does_not_count_beside_another_credential() -> Result<()> {
    let harness = Harness::open().await?;
    let admin = session_secret(&sign_in(&harness.admin).await?)?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let both = with_cookie(viewer.request(Method::GET, "whoami"), &admin).send().await?;
    assert_eq!(read::<WhoAmI>(both).await?.role, Role::Viewer);
    for wrong in ["Bearer brk_wrong", "Bearer ", "Basic YTpi", "anything"] {
        let request = harness.without_credential().request(Method::GET, "whoami");
        let response = as_console(request, &admin).header("authorization", wrong).send().await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK1001, "{wrong}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_see_and_close_only_sessions_of_their_own_token_and_admins_all() -> Result<()> {
    let harness = Harness::open().await?;
    let (one, two) = (harness.with_role(Role::Owner).await?, harness.with_role(Role::Owner).await?);
    let of_one: SessionDetails = read(sign_in(&one).await?).await?;
    let of_two: SessionDetails = read(sign_in(&two).await?).await?;
    let seen = one.get_json::<Page<ConsoleSession>>("sessions").await?.items;
    assert_eq!(seen, [of_one.session]);
    let path = format!("sessions/{}", of_two.session.id);
    assert_eq!(refused(one.get(&path).await?).await?, ErrorCode::BRK2001);
    let closed = one.request(Method::DELETE, &path).send().await?;
    assert_eq!(refused(closed).await?, ErrorCode::BRK2001);

    let auditor = harness.with_role(Role::Auditor).await?;
    assert_eq!(auditor.get_json::<SessionDetails>(&path).await?.session, of_two.session);
    let closed = auditor.request(Method::DELETE, &path).send().await?;
    assert_eq!(refused(closed).await?, ErrorCode::BRK2001, "an auditor changes nothing of others");
    assert_eq!(harness.admin.get_json::<Page<ConsoleSession>>("sessions").await?.items.len(), 2);
    let closed = harness.admin.request(Method::DELETE, &path).send().await?;
    assert_eq!(closed.status(), 204);
    assert!(closed.headers().get("set-cookie").is_none(), "it was not the session of this browser");
    assert_eq!(refused(two.get(&path).await?).await?, ErrorCode::BRK2001);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_token_are_limited_and_an_unused_one_makes_room() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let first: SessionDetails = read(sign_in(&viewer).await?).await?;
    let mut last = first.clone();
    for _ in 0..50 {
        last = read(sign_in(&viewer).await?).await?;
    }
    let open = viewer.get_json::<Page<ConsoleSession>>("sessions?limit=500").await?.items;
    assert_eq!(open.len(), 50);
    assert!(open.contains(&last.session) && !open.contains(&first.session));
    Ok(())
}
