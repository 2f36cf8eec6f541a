//! Sockets that say nothing do not live for ever.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use brokkr_testkit::Scratch;
use brokkr_testkit::tls::Authority;

use crate::house::{House, serve_with};

#[tokio::test(flavor = "multi_thread")]
async fn tls_serves_both_versions_of_http_and_a_stalled_handshake_ends() -> Result<()> {
    let house = House::open().await?;
    let (authority, scratch) = (Authority::new("test")?, Scratch::new("tls")?);
    let identity = authority.server(&scratch, "broker", &[])?;
    let server = serve_with(&house.database, Some((identity.certificate, identity.key))).await?;
    let builder = || {
        let trusted = reqwest::Certificate::from_pem(authority.pem().as_bytes());
        trusted.map(|trusted| reqwest::Client::builder().tls_certs_only([trusted]).no_proxy())
    };
    let url = format!("https://{}/livez", server.address);
    assert_eq!(builder()?.build()?.get(&url).send().await?.version(), reqwest::Version::HTTP_2);
    assert_eq!(builder()?.http1_only().build()?.get(&url).send().await?.version(), reqwest::Version::HTTP_11);

    let started = Instant::now();
    let mut stream = TcpStream::connect(server.address).await?;
    stream.write_all(&[0x16, 3, 1]).await?;
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut Vec::new())).await?;
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_ask_for_nothing_are_closed() -> Result<()> {
    let house = House::open().await?;
    let address = house.server.address;
    // Silent; the beginning of the HTTP/2 preface; headers that never end.
    let openings: [&[u8]; 3] = [b"", b"P", b"GET /livez HTTP/1.1\r\nhost: a\r\nx: "];
    let closings = openings.map(|bytes| async move {
        let started = Instant::now();
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut answer = Vec::new();
        // Closed, or reset: either way it has ended.
        let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await?;
        anyhow::Ok(started.elapsed())
    });
    for took in futures::future::join_all(closings).await {
        let took = took?;
        assert!((Duration::from_secs(5)..Duration::from_secs(15)).contains(&took), "{took:?}");
    }
    Ok(())
}
