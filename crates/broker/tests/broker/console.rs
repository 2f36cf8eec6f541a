//! The files of the console, as a browser gets them. What depends on files is checked only if the console was built.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::ids::Checksum;
use brokkr_console::{ASSETS, CONTENT_SECURITY_POLICY, FILES, File};
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Method, Response};

use crate::harness::{Caller, Harness, refused};

/// A browser that follows no redirects.
struct Browser {
    http: reqwest::Client,
    base: String,
}

impl Browser {
    fn of(caller: &Caller) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().no_gzip().redirect(Policy::none()).build()?;
        Ok(Self { http, base: caller.base.clone() })
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Response> {
        let mut request = self.http.get(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(request.send().await?)
    }
}

/// Clickjacking, sniffing and leaks: checks what protects every response below `/ui/`.
fn assert_protected(path: &str, headers: &HeaderMap) {
    let expected = [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
    ];
    for (name, value) in expected {
        let values: Vec<_> = headers.get_all(name).iter().collect();
        assert_eq!(values, [value], "{path}: {name}");
    }
    assert!(headers.keys().all(|name| !name.as_str().starts_with("access-control-")), "{path}");
    assert!(!headers.contains_key("set-cookie"), "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_public_and_no_page_may_frame_it_or_add_code() -> Result<()> {
    let harness = Harness::open().await?;
    let browser = Browser::of(&harness.without_credential())?;
    assert!(CONTENT_SECURITY_POLICY.contains("frame-ancestors 'none'"));
    for path in
        ["/ui/", "/ui/login", "/ui/stacks/web?tab=diff", "/ui/agents/store.0412", "/ui/assets/none.js"]
    {
        let response = browser.get(path, &[]).await?;
        assert_protected(path, response.headers());
        // With a session or a wrong credential, it is the same.
        let other = browser.get(path, &[("authorization", "Bearer brk_wrong")]).await?;
        assert_eq!(response.status(), other.status(), "{path}");
    }
    for path in ["/", "/ui"] {
        let response = browser.get(path, &[]).await?;
        assert_eq!(
            (response.status().as_u16(), response.headers()["location"].to_str()?),
            (307, "/ui/"),
            "{path}"
        );
        assert_protected(path, response.headers());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_assets_and_unknown_routes_of_the_api_remain_problem_documents() -> Result<()> {
    let harness = Harness::open().await?;
    let anyone = harness.without_credential();
    for path in ["/ui/assets/none.js", "/ui/assets/", "/api/v1/nowhere", "/api", "/uix", "/auth/nowhere"] {
        assert_eq!(refused(anyone.get(path).await?).await?, ErrorCode::BRK2001, "{path}");
    }
    let posted = anyone.request(Method::POST, "/ui/").send().await?;
    assert_eq!(posted.status(), 405);
    assert_eq!(refused(posted).await?, ErrorCode::BRK2003);
    Ok(())
}

/// Returns the folder from which the build script takes the files.
fn dist() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../console/dist")
}

/// A build may miss a folder that was restored with old times: then this broker would be released without the console.
#[tokio::test(flavor = "multi_thread")]
async fn the_served_page_is_the_one_that_was_built() -> Result<()> {
    let harness = Harness::open().await?;
    let browser = Browser::of(&harness.without_credential())?;
    let response = browser.get("/ui/", &[]).await?;
    let Ok(built) = std::fs::read(dist().join("index.html")) else {
        assert_eq!(response.status(), 404);
        let text = response.text().await?;
        assert!(text.contains("cargo xtask console"), "{text}");
        return Ok(());
    };
    assert_eq!(response.status(), 200, "the console was built, but is not in the broker");
    let tag = format!("\"{}\"", Checksum::of(&built));
    assert_eq!(response.headers()["etag"], tag.as_str());
    assert_eq!(response.bytes().await?, built);
    Ok(())
}

/// Checks one file: its bytes, its tag, and how it is cached.
async fn check_file(browser: &Browser, file: &File) -> Result<()> {
    let path = format!("/ui/{}", file.path);
    let cached =
        if file.path.starts_with(ASSETS) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let variants = [("identity", Some(&file.plain)), ("br", file.brotli.as_ref())];
    for (encoding, variant) in variants {
        let Some(variant) = variant else { continue };
        let accepts = ("accept-encoding", encoding);
        let response = browser.get(&path, &[accepts]).await?;
        assert_eq!(response.status(), 200, "{path}");
        assert_protected(&path, response.headers());
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!(text("content-encoding").unwrap_or("identity"), encoding, "{path}");
        assert_eq!(
            (text("content-type"), text("cache-control")),
            (Some(file.media_type), Some(cached)),
            "{path}"
        );
        assert_eq!(text("vary"), Some("accept-encoding"), "{path}");
        let tag = text("etag").context("it has a tag")?.to_owned();
        let body = response.bytes().await?;
        assert_eq!(tag, format!("\"{}\"", Checksum::of(&body)), "{path}: the tag is the digest of the bytes");
        assert!(body == variant.bytes, "{path}: other bytes than those that were built");
        let again = browser.get(&path, &[accepts, ("if-none-match", tag.as_str())]).await?;
        assert_eq!(again.status(), 304, "{path}");
        assert_eq!(again.headers()["etag"], tag.as_str());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_is_served_as_it_was_built_in_each_encoding() -> Result<()> {
    let harness = Harness::open().await?;
    let browser = Browser::of(&harness.without_credential())?;
    for file in FILES {
        check_file(&browser, file).await?;
    }
    // A link into the console shows the same page as the beginning.
    if let Some(page) = brokkr_console::index() {
        let deep = browser.get("/ui/stacks/web/agents/store-0412", &[]).await?;
        assert_eq!(deep.headers()["etag"], page.plain.etag);
        assert_eq!(deep.headers()["cache-control"], "no-cache");
        assert!(
            FILES.iter().any(|file| file.is_immutable() && file.brotli.is_some()),
            "nothing is compressed"
        );
    }
    Ok(())
}
