//! Whether a request with a cookie comes from the console of this broker.
//!
//! A browser adds cookies to requests that other sites cause. The attribute `SameSite=Strict` prevents that, except for sites that
//! share the domain of the broker, and for browsers that ignore it. So every write with a cookie, and every sign-in, has to prove its
//! origin: by a header that a page can add to requests to its own origin only, and by what the browser itself says about the origin.
//! The broker never answers with headers that allow other origins (CORS).

use brokkr_api::ErrorCode;
use brokkr_api::audit::RefusalReason;
use brokkr_api::protocol::header::CONSOLE;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};
use url::Url;

use crate::error::ApiError;

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Why a request is not accepted as one of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum NotSameOrigin {
    #[strum(to_string = "the header `brokkr-console: 1` is missing")]
    NoConsoleHeader,
    #[strum(to_string = "`Sec-Fetch-Site` is not `same-origin`")]
    OtherSite,
    #[strum(to_string = "`Origin` is not the host that the request was sent to")]
    OtherOrigin,
    #[strum(to_string = "`Sec-Fetch-Site` and `Origin` are missing")]
    NoOrigin,
}

impl NotSameOrigin {
    #[must_use]
    pub fn refusal(self) -> ApiError {
        ApiError::new(ErrorCode::BRK1013, format!("the request does not come from the console: {self}"))
            .refused_for(RefusalReason::CrossSite)
    }
}

/// Checks a write that has a cookie.
pub fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), NotSameOrigin> {
    check_console_header(headers)?;
    if !headers.contains_key(SEC_FETCH_SITE) && !headers.contains_key(ORIGIN) {
        return Err(NotSameOrigin::NoOrigin);
    }
    check_origin(uri, headers)
}

/// Checks a sign-in, which other programs than browsers may make, too.
pub fn check_sign_in(uri: &Uri, headers: &HeaderMap) -> Result<(), NotSameOrigin> {
    check_console_header(headers)?;
    check_origin(uri, headers)
}

/// Checks a read that has a cookie: pages of other hosts learn nothing from it, but must not open streams or prolong the session. A
/// person who opens the address itself has no site.
pub fn check_read(headers: &HeaderMap) -> Result<(), NotSameOrigin> {
    let is_foreign = |site: &HeaderValue| site != "same-origin" && site != "none";
    if headers.get_all(SEC_FETCH_SITE).iter().any(is_foreign) {
        Err(NotSameOrigin::OtherSite)
    } else {
        Ok(())
    }
}

/// Checks what a browser says about the origin, if it says anything.
fn check_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), NotSameOrigin> {
    // Browsers do not let pages set this header.
    if headers.contains_key(SEC_FETCH_SITE) {
        return if only(headers, SEC_FETCH_SITE).is_some_and(|site| site == "same-origin") {
            Ok(())
        } else {
            Err(NotSameOrigin::OtherSite)
        };
    }
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let origin = only(headers, ORIGIN.as_str()).and_then(|origin| origin.to_str().ok());
    match (origin.and_then(|origin| Url::parse(origin).ok()), authority(uri, headers)) {
        (Some(origin), Some(host)) if is_same(&origin, &host) => Ok(()),
        _ => Err(NotSameOrigin::OtherOrigin),
    }
}

/// Checks that the request has the header of the console.
fn check_console_header(headers: &HeaderMap) -> Result<(), NotSameOrigin> {
    if only(headers, CONSOLE).is_some_and(|value| value == "1") {
        Ok(())
    } else {
        Err(NotSameOrigin::NoConsoleHeader)
    }
}

/// Returns the value of a header, unless it has several.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Returns the host and port that the request was sent to. With HTTP/2, they are a part of the URI.
fn authority(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    match uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => only(headers, HOST.as_str())?.to_str().ok()?.parse().ok(),
    }
}

/// Returns whether host and port are the same. Without a port, it is the default one of the scheme of the origin: a proxy may
/// terminate TLS, so the broker does not know the scheme itself.
fn is_same(origin: &Url, host: &Authority) -> bool {
    let default = match origin.scheme() {
        "https" => 443,
        "http" => 80,
        _ => return false,
    };
    origin.host_str().is_some_and(|name| name.eq_ignore_ascii_case(host.host()))
        && origin.port().unwrap_or(default) == host.port_u16().unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    const H2: &str = "https://brokkr.example/api/v1/stacks";

    fn checked(uri: &'static str, headers: &[(&'static str, &'static str)]) -> Result<(), NotSameOrigin> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        check(&Uri::from_static(uri), &map)
    }

    #[test]
    fn the_console_passes_over_both_versions_of_http() {
        for headers in [
            &[("brokkr-console", "1"), ("sec-fetch-site", "same-origin")][..],
            // The browser has already compared the origin, also if a proxy changes the host.
            &[
                ("brokkr-console", "1"),
                ("sec-fetch-site", "same-origin"),
                ("origin", "https://other.example"),
            ],
            &[("brokkr-console", "1"), ("origin", "https://brokkr.example")],
            &[("brokkr-console", "1"), ("origin", "https://BROKKR.example:443")],
        ] {
            assert_eq!(checked(H2, headers), Ok(()), "{headers:?}");
            let with_host = [headers, &[("host", "brokkr.example")][..]].concat();
            assert_eq!(checked("/api/v1/stacks", &with_host), Ok(()), "{headers:?}");
        }
        for (host, origin) in [
            ("brokkr.example:8780", "https://brokkr.example:8780"),
            ("localhost:8780", "http://localhost:8780"),
            ("[::1]:8780", "http://[::1]:8780"),
            ("brokkr.example:443", "https://brokkr.example"),
        ] {
            let headers = [("brokkr-console", "1"), ("origin", origin), ("host", host)];
            assert_eq!(checked("/api/v1/stacks", &headers), Ok(()), "{origin}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        use NotSameOrigin::{NoConsoleHeader, NoOrigin, OtherOrigin, OtherSite};
        let cases: &[(&[(&'static str, &'static str)], NotSameOrigin)] = &[
            (&[], NoConsoleHeader),
            (&[("sec-fetch-site", "same-origin")], NoConsoleHeader),
            (&[("brokkr-console", "yes"), ("sec-fetch-site", "same-origin")], NoConsoleHeader),
            (
                &[("brokkr-console", "1"), ("brokkr-console", "1"), ("sec-fetch-site", "same-origin")],
                NoConsoleHeader,
            ),
            (&[("brokkr-console", "1")], NoOrigin),
            (&[("brokkr-console", "1"), ("sec-fetch-site", "cross-site")], OtherSite),
            (&[("brokkr-console", "1"), ("sec-fetch-site", "same-site")], OtherSite),
            (&[("brokkr-console", "1"), ("sec-fetch-site", "none")], OtherSite),
            (&[("brokkr-console", "1"), ("sec-fetch-site", "")], OtherSite),
            (
                &[
                    ("brokkr-console", "1"),
                    ("sec-fetch-site", "same-origin"),
                    ("sec-fetch-site", "cross-site"),
                ],
                OtherSite,
            ),
            // The right origin does not help if the browser says that the site is another one.
            (
                &[
                    ("brokkr-console", "1"),
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "https://brokkr.example"),
                ],
                OtherSite,
            ),
            (&[("brokkr-console", "1"), ("origin", "null")], OtherOrigin),
            (&[("brokkr-console", "1"), ("origin", "https://evil.example")], OtherOrigin),
            (&[("brokkr-console", "1"), ("origin", "https://brokkr.example.evil.example")], OtherOrigin),
            (&[("brokkr-console", "1"), ("origin", "https://sub.brokkr.example")], OtherOrigin),
            (&[("brokkr-console", "1"), ("origin", "https://brokkr.example:8443")], OtherOrigin),
            (&[("brokkr-console", "1"), ("origin", "file://brokkr.example")], OtherOrigin),
            (
                &[
                    ("brokkr-console", "1"),
                    ("origin", "https://brokkr.example"),
                    ("origin", "https://evil.example"),
                ],
                OtherOrigin,
            ),
        ];
        for (headers, why) in cases {
            assert_eq!(checked(H2, headers), Err(*why), "{headers:?}");
        }
        let without_host = [("brokkr-console", "1"), ("origin", "https://brokkr.example")];
        assert_eq!(checked("/api/v1/stacks", &without_host), Err(OtherOrigin));
    }

    #[test]
    fn a_sign_in_needs_no_browser_but_the_right_one() {
        let map = |headers: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            headers.iter().map(pair).collect()
        };
        let uri = Uri::from_static(H2);
        assert_eq!(check_sign_in(&uri, &map(&[("brokkr-console", "1")])), Ok(()));
        assert_eq!(check_sign_in(&uri, &map(&[])), Err(NotSameOrigin::NoConsoleHeader));
        for (header, value, why) in [
            ("sec-fetch-site", "cross-site", NotSameOrigin::OtherSite),
            ("origin", "https://evil.example", NotSameOrigin::OtherOrigin),
        ] {
            let headers = map(&[("brokkr-console", "1"), (header, value)]);
            assert_eq!(check_sign_in(&uri, &headers), Err(why), "{header}");
        }
        for (site, expected) in [
            ("same-origin", Ok(())),
            ("none", Ok(())),
            ("same-site", Err(NotSameOrigin::OtherSite)),
            ("cross-site", Err(NotSameOrigin::OtherSite)),
        ] {
            assert_eq!(check_read(&map(&[("sec-fetch-site", site)])), expected, "{site}");
        }
        assert_eq!(check_read(&map(&[])), Ok(()));
    }
}
