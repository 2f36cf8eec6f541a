//! `NO_PROXY` for requests to the API server.
//!
//! `HTTPS_PROXY` and `NO_PROXY` apply to the broker and to the API server. Inside a cluster kube uses no proxy; with a
//! kubeconfig it uses `HTTPS_PROXY`, and compares `NO_PROXY` with the proxy's own address instead of the API server's.

use hyper_util::client::proxy::matcher::Matcher;

/// Removes the proxy of the environment if `NO_PROXY` matches the API server. A proxy in the kubeconfig
/// stays.
pub fn past_no_proxy(config: &mut kube::Config) {
    let named = std::env::var("HTTPS_PROXY").or_else(|_| std::env::var("https_proxy"));
    let named = named.ok().and_then(|url| url.parse().ok());
    if is_bypassed(config, named.as_ref(), &Matcher::from_env()) {
        config.proxy_url = None;
    }
}

fn is_bypassed(config: &kube::Config, named: Option<&http::Uri>, environment: &Matcher) -> bool {
    named.is_some()
        && config.proxy_url.as_ref() == named
        && environment.intercept(&config.cluster_url).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://proxy.example:3128";

    fn bypasses(server: &str, proxy: &str, no_proxy: &str) -> bool {
        let mut config = kube::Config::new(server.parse().unwrap());
        config.proxy_url = Some(proxy.parse().unwrap());
        let environment = Matcher::builder().https(PROXY).no(no_proxy).build();
        is_bypassed(&config, Some(&PROXY.parse().unwrap()), &environment)
    }

    #[test]
    fn no_proxy_is_compared_with_the_api_servers_address() {
        assert!(bypasses("https://10.0.0.1:6443", PROXY, "10.0.0.0/8"));
        assert!(bypasses("https://api.cluster.example", PROXY, ".cluster.example"));
        assert!(!bypasses("https://192.168.0.1:6443", PROXY, "10.0.0.0/8"));
        assert!(
            !bypasses("https://10.0.0.1:6443", PROXY, "proxy.example"),
            "the proxy's own name does not matter"
        );
        assert!(
            !bypasses("https://10.0.0.1:6443", "http://bastion:3128", "10.0.0.0/8"),
            "the proxy is from the kubeconfig"
        );
    }
}
