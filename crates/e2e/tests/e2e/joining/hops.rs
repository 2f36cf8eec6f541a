//! Every step on the way to the broker fails for real. The reported fix is applied, and then the agent joins.

use anyhow::Result;
use brokkr_testkit::forward_proxy::{ForwardProxy, ProxyAccess};
use brokkr_testkit::{Clock, Cluster, Port};

use super::Site;
use brokkr_testkit::world::namespace_yaml;

const DAY: i64 = 24 * 60 * 60;

#[tokio::test]
async fn a_failed_join_names_the_failed_step_and_what_to_do() -> Result<()> {
    let port = Port::free()?;
    let closed = format!("https://{}", port.address());
    let stranger = Cluster::shared().await?;
    let cases: [(&str, &str, &[&str], &str); 4] = [
        ("dns", "lookup", &["--broker-url", "https://broker.invalid"], "--broker-url"),
        ("connect", "refused", &["--broker-url", &closed], "firewall"),
        // Another server answers there, with a certificate of an untrusted authority.
        ("tls", "certificate", &["--broker-url", stranger.url()], "--ca-file"),
        ("token", "join token", &["--ttl", "1s"], "run the command again; it creates a new token"),
    ];
    // All in one namespace: leftovers of an earlier attempt do not disturb the next one.
    let site = Site::new().await?;
    for (hop, reason, further, next) in cases {
        site.stops(hop, &[reason, next], further).await?;
    }
    site.succeeds(&[]).await
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_and_one_that_allows_is_sufficient() -> Result<()> {
    let site = Site::new().await?;
    // By name: the broker has the same IP address as the API server, which is reached without the proxy.
    let broker = format!("localhost:{}", site.fleet.broker.port());
    let url = format!("https://{broker}");
    let (unused, closed) = (Port::free()?, ForwardProxy::start(ProxyAccess::Closed).await?);
    let guarded = ForwardProxy::start(ProxyAccess::Password("shop:s3cret".into())).await?;
    let cases = [
        (format!("localhost:{}", unused.number()), "refused"),
        (closed.address(), "the proxy refused the connection"),
        (guarded.address(), "the proxy requires a user name and password"),
    ];
    for (address, reason) in &cases {
        let proxy = format!("http://{address}");
        let named = format!("through the proxy {address}");
        let words = [reason, named.as_str(), "check --proxy (http://USER:PASSWORD@HOST:PORT"];
        site.stops("proxy", &words, &["--broker-url", &url, "--proxy", &proxy]).await?;
    }

    let proxy = format!("http://shop:s3cret@{}", guarded.address());
    site.succeeds(&["--broker-url", &url, "--proxy", &proxy, "--label", "env=prod"]).await?;
    site.fleet
        .apply("web", "env=prod", &namespace_yaml(&site.namespace.replace("joining", "joined")))
        .await?;
    for target in [closed.targets(), guarded.targets()].concat() {
        assert_eq!(target, broker, "the API server is reached without a proxy");
    }
    let workload = ["get", "deployments,pods", "-n", &site.namespace, "-o", "yaml"];
    let workload = site.cluster.kubectl(workload).await?.ok()?.stdout;
    assert!(workload.contains("HTTPS_PROXY") && !workload.contains("s3cret"), "{workload}");
    Ok(())
}

#[tokio::test]
async fn a_clock_outside_the_validity_of_the_certificate_is_named_and_smaller_errors_are_tolerated()
-> Result<()> {
    let (clock, site) = (Clock::make().await?, Site::new().await?);
    for (days, reason) in [(-3, "certificate not valid yet"), (60, "certificate expired")] {
        set_node_clock(&site, clock.shifted(days * DAY));
        let there = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(days * DAY);
        let month = there.strftime("the local clock says %Y-%m-").to_string();
        let next = "set the clock of the cluster's nodes; if it is correct, renew the broker's certificate";
        site.stops("clock", &[reason, &month, next], &[]).await?;
    }

    // An assertion is valid for a minute by the broker's clock, which the agent learns.
    set_node_clock(&site, clock.shifted(-600));
    site.succeeds(&["--label", "env=prod"]).await?;
    site.fleet
        .apply("web", "env=prod", &namespace_yaml(&site.namespace.replace("joining", "joined")))
        .await?;
    set_node_clock(&site, clock.shifted(2 * 60 * 60));
    site.succeeds(&["--rejoin"]).await?;
    site.fleet.delete("web").await?;
    Ok(())
}

/// Gives every Pod that starts from now on the environment of a shifted clock.
fn set_node_clock(site: &Site, environment: Vec<(String, String)>) {
    site.pods.iter().for_each(|pods| pods.node_gives(environment.clone()));
}
