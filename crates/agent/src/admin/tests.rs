//! The responses of the listener, over a socket.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

struct Rig {
    admin: Admin,
    address: SocketAddr,
}

impl Rig {
    async fn start() -> Self {
        let admin = Admin::new(Metrics::default(), Duration::from_secs(30));
        let listener = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(admin.clone().serve(listener));
        Self { admin, address }
    }

    /// Returns the complete response, with headers.
    async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Starts a reconciler that always answers with these counts.
    fn answering(&self, counts: Counts) {
        let mut asked = self.admin.running();
        tokio::spawn(async move {
            while let Some(asked) = asked.recv().await {
                let _ = asked.send(counts.clone());
            }
        });
    }
}

#[tokio::test]
async fn a_starting_agent_is_alive_and_says_what_it_waits_for() {
    let rig = Rig::start().await;
    rig.admin.starting("join the broker");
    assert!(rig.get("/livez").await.starts_with("HTTP/1.1 200"));
    let ready = rig.get("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("it must join the broker first"), "{ready}");
    let metrics = rig.get("/metrics").await;
    assert!(metrics.contains("brokkr_agent_ready 0\n") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(rig.get("/").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn an_agent_is_ready_with_a_target_state_unless_its_writes_are_suspended() {
    let rig = Rig::start().await;
    rig.answering(Counts { has_target_state: true, active: true, ..Counts::none() });
    let ready = rig.get("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.ends_with(r#""whole":true}"#), "{ready}");
    assert!(rig.get("/metrics").await.contains("brokkr_agent_ready 1\n"));

    let twin = Rig::start().await;
    twin.answering(Counts {
        has_target_state: true,
        writes_suspended: Some("a newer session of this agent is active"),
        ..Counts::none()
    });
    let ready = twin.get("/readyz").await;
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("a newer session of this agent is active"),
        "{ready}"
    );
    assert!(twin.get("/livez").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_new_version_is_ready_only_when_it_is_confirmed() {
    let rig = Rig::start().await;
    rig.admin.set_confirmed(false);
    rig.answering(Counts { has_target_state: true, active: true, ..Counts::none() });
    let ready = rig.get("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("not confirmed yet"), "{ready}");
    assert!(rig.get("/livez").await.starts_with("HTTP/1.1 200"));
    rig.admin.set_confirmed(true);
    assert!(rig.get("/readyz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_agent_without_a_reconciler_is_not_alive() {
    let rig = Rig::start().await;
    drop(rig.admin.running());
    let alive = rig.get("/livez").await;
    assert!(alive.starts_with("HTTP/1.1 503") && alive.contains("restart this agent"), "{alive}");
}

#[tokio::test]
async fn the_number_of_series_is_the_same_before_and_after_the_start() {
    let rig = Rig::start().await;
    let count = |text: &str| text.lines().filter(|line| line.starts_with("brokkr_agent_")).count();
    let before = count(&rig.get("/metrics").await);
    rig.answering(Counts { has_target_state: true, objects: 10_000, ..Counts::none() });
    assert_eq!(count(&rig.get("/metrics").await), before);
}
