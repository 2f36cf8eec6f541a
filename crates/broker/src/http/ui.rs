//! Serves the files of the console below `/ui/`.
//!
//! They are public: they contain no data, and the console has to be shown before anyone can sign in. Every path that is not a file
//! shows the same page, so that links into the console work; only `assets/` has nothing but files.

use axum::body::Body;
use axum::response::{IntoResponse as _, Redirect, Response};
use brokkr_console::{ASSETS, CONTENT_SECURITY_POLICY, File, NOT_BUILT};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY as POLICY, CONTENT_TYPE, ETAG,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use crate::error::ApiError;
use crate::http::headers::has_already;

/// Where the console is served.
pub const CONSOLE: &str = "/ui/";
/// The encoding of compressed files.
const BROTLI: &str = "br";

/// Sends browsers to the console.
pub async fn to_console() -> Response {
    protected(Redirect::temporary(CONSOLE).into_response())
}

/// Returns a file of the console, or its page.
pub async fn console(uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().strip_prefix(CONSOLE).unwrap_or_default();
    protected(match (brokkr_console::find(path), brokkr_console::index()) {
        (Some(file), _) => serve(file, &headers),
        (None, _) if path.starts_with(ASSETS) => ApiError::not_found("file of the console").into_response(),
        (None, Some(page)) => serve(page, &headers),
        (None, None) => not_built(),
    })
}

/// Adds what limits the page in the browser: what it may load, who may show it in a frame, and what others learn from it.
fn protected(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let opener = HeaderName::from_static("cross-origin-opener-policy");
    headers.insert(opener, HeaderValue::from_static("same-origin"));
    // A file that this replica does not have may be there after an upgrade.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    response
}

fn serve(file: &'static File, headers: &HeaderMap) -> Response {
    // Every browser accepts it over HTTPS.
    let brotli = file.brotli.as_ref().filter(|_| accepts(headers, BROTLI));
    let content = brotli.unwrap_or(&file.plain);
    let mut response = if has_already(headers, content.etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Body::from(content.bytes).into_response();
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(file.media_type));
        if brotli.is_some() {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static(BROTLI));
        }
        response
    };
    let cached = if file.is_immutable() { "public, max-age=31536000, immutable" } else { "no-cache" };
    let fields = response.headers_mut();
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(cached));
    fields.insert(ETAG, HeaderValue::from_static(content.etag));
    fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

/// Returns whether the client accepts the encoding: by its name, or by `*` if the name is not there.
fn accepts(headers: &HeaderMap, encoding: &str) -> bool {
    let items = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','));
    let mut any = false;
    for item in items {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        let is_accepted = weight.is_none_or(|weight| weight > 0.0);
        match name.trim() {
            name if name.eq_ignore_ascii_case(encoding) => return is_accepted,
            "*" => any = is_accepted,
            _ => {}
        }
    }
    any
}

/// Says how to build the console.
fn not_built() -> Response {
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "text/html; charset=utf-8")], NOT_BUILT).into_response()
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_LENGTH, IF_NONE_MATCH};
    use http_body_util::BodyExt as _;

    use brokkr_console::Encoded;

    use super::*;

    static SCRIPT: File = File {
        path: "assets/main-1a2b.js",
        media_type: "text/javascript; charset=utf-8",
        plain: Encoded { bytes: b"plain", etag: "\"p\"" },
        brotli: Some(Encoded { bytes: b"brotli", etag: "\"b\"" }),
    };
    static PAGE: File = File {
        path: "index.html",
        media_type: "text/html; charset=utf-8",
        plain: Encoded { bytes: b"page", etag: "\"i\"" },
        brotli: None,
    };

    fn accepting(encodings: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encodings))])
    }

    #[tokio::test]
    async fn a_client_gets_the_compressed_variant_if_it_accepts_it() {
        for (encodings, is_compressed) in [
            ("gzip, deflate, br, zstd", true),
            ("br;q=0.5, gzip;q=1.0", true),
            ("BR", true),
            ("br; q=0, gzip", false),
            ("*", true),
            ("br;q=0, *;q=0.1", false),
            ("*;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let response = serve(&SCRIPT, &accepting(encodings));
            let encoding = response.headers().get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
            assert_eq!(encoding, is_compressed.then_some("br"), "{encodings:?}");
            let tag = response.headers()[ETAG].clone();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let (bytes, etag) = if is_compressed { ("brotli", "\"b\"") } else { ("plain", "\"p\"") };
            assert_eq!((body.as_ref(), tag.to_str().unwrap()), (bytes.as_bytes(), etag), "{encodings:?}");
        }
        assert!(serve(&PAGE, &accepting("br, gzip")).headers().get(CONTENT_ENCODING).is_none());
    }

    #[tokio::test]
    async fn files_with_a_digest_in_their_name_are_kept_and_the_page_is_checked_again() {
        let script = serve(&SCRIPT, &HeaderMap::new());
        assert_eq!(script.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
        assert_eq!(script.headers()[VARY], "accept-encoding");
        let page = serve(&PAGE, &HeaderMap::new());
        assert_eq!(page.headers()[CACHE_CONTROL], "no-cache");

        let mut headers = accepting("br");
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"x\", W/\"b\""));
        let same = serve(&SCRIPT, &headers);
        assert_eq!(
            (same.status(), &same.headers()[ETAG]),
            (StatusCode::NOT_MODIFIED, &"\"b\"".parse().unwrap())
        );
        assert!(same.headers().get(CONTENT_LENGTH).is_none() && same.headers().get(CONTENT_TYPE).is_none());
        assert!(same.into_body().collect().await.unwrap().to_bytes().is_empty());
        // Another variant of the same file is another content.
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"p\""));
        assert_eq!(serve(&SCRIPT, &headers).status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn every_response_is_protected() {
        for path in ["/ui/", "/ui/stacks/web", "/ui/assets/none.js"] {
            let response = console(Uri::from_static(path), HeaderMap::new()).await;
            assert_eq!(response.headers()[POLICY], CONTENT_SECURITY_POLICY, "{path}");
            assert_eq!(response.headers()[CACHE_CONTROL], "no-cache", "{path}");
        }
        let redirect = to_console().await;
        assert_eq!(redirect.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(redirect.headers()["location"], CONSOLE);
        assert_eq!(redirect.headers()[POLICY], CONTENT_SECURITY_POLICY);
    }
}
