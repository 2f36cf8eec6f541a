//! The broker's chart: it migrates, serves with TLS, and keeps serving during an upgrade.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use brokkr_testkit::process::run;
use brokkr_testkit::{
    Attempt, Cli, Cluster, Database, Launch, Output, PodRunner, Postgres, Scratch, eventually, programs,
    unique,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::{chart, earlier_chart, helm};
use brokkr_testkit::world::WAIT_TIMEOUT;

const PROGRAM: &str = "brokkr-broker";

struct Installation {
    // Dropped in this order: the Pods before their database.
    pods: PodRunner,
    database: Database,
    cluster: std::sync::Arc<Cluster>,
    home: String,
    scratch: Scratch,
}

impl Installation {
    /// Creates a namespace with the address of an empty database in a Secret.
    async fn prepare() -> Result<Self> {
        let (cluster, home) = (Cluster::shared().await?, unique("brokkr-chart"));
        let database = Postgres::shared().await?.database().await?;
        cluster.kubectl(["create", "namespace", &home]).await?.ok()?;
        let url = format!("--from-literal=address={}", database.url());
        cluster.kubectl(["create", "secret", "generic", "database", "-n", &home, &url]).await?.ok()?;
        let pods = PodRunner::start_in(&cluster, &home).await?;
        Ok(Self { pods, database, cluster, home, scratch: Scratch::new("chart")? })
    }

    async fn install(&self, chart: &Path, replicas: u32) -> Result<()> {
        self.upgrade(chart, replicas, &[]).await?;
        Ok(())
    }

    /// Returns the commands in the notes of the chart.
    async fn notes(&self) -> Result<String> {
        let output = self.upgrade(&chart("brokkr"), 2, &["--dry-run=server"]).await?.stdout;
        let (_, notes) = output.split_once("\nNOTES:\n").context("notes")?;
        let (log_in, _) = notes.split_once("\nThen let a cluster join").context("how to log in")?;
        Ok(log_in.lines().filter_map(|line| line.strip_prefix("    ")).collect::<Vec<_>>().join("\n"))
    }

    async fn upgrade(&self, chart: &Path, replicas: u32, further: &[&str]) -> Result<Output> {
        let replicas = format!("replicas={replicas}");
        let values = [
            replicas.as_str(),
            "evaluation.enabled=true",
            "database.existingSecret.name=database",
            "database.existingSecret.key=address",
        ];
        let chart = chart.to_str().context("a path as text")?;
        let mut arguments = vec!["upgrade", "--install", "brokkr", chart, "-n", &self.home];
        values.iter().for_each(|value| arguments.extend(["--set", value]));
        arguments.extend(further);
        self.cluster.helm(arguments).await?.ok()
    }

    /// Types the commands of the notes. Only `kubectl exec` and `port-forward`, which need a kubelet, are simulated.
    async fn type_notes(&self) -> Result<String> {
        let address = self.pods.running(PROGRAM).await?.address("api").context("a port for the API")?;
        let (broker, kubectl) = (programs::program(PROGRAM)?, programs::kubectl_folder()?.join("kubectl"));
        let script = format!(
            "#!/bin/bash\ncase \" $* \" in\n*' exec deployment/brokkr -c broker -- /brokkr-broker bootstrap ') \
             exec '{}' bootstrap;;\n*' port-forward service/brokkr 8780:8780 ') ;;\n*) exec '{}' \"$@\";;\nesac\n",
            broker.display(),
            kubectl.display()
        );
        let path = self.scratch.write("kubectl", script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let notes = self.notes().await?.replace("localhost:8780", &address);
        let folders = [self.scratch.path().to_owned(), programs::folder()?];
        let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths("/usr/bin:/bin")))?;
        let typed = Launch::new("bash", "/bin/bash")
            .args(["-euo", "pipefail", "-c", &format!("{notes}\ncat admin-token")])
            .folder(self.scratch.path())
            .env("PATH", path)
            .env("HOME", self.scratch.path())
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("BROKKR_DATABASE_URL", self.database.url());
        let typed = run(typed, WAIT_TIMEOUT).await?.ok().context(notes)?;
        let (output, token) = typed.stdout.trim().rsplit_once('\n').context("the identity and the token")?;
        assert!(output.contains("logged in to https://"), "{typed:?}");
        Ok(token.to_owned())
    }

    /// Waits until this many brokers are ready.
    async fn ready(&self, wanted: usize) -> Result<()> {
        let http = reqwest::Client::builder().no_proxy().timeout(WAIT_TIMEOUT).build()?;
        eventually(WAIT_TIMEOUT, &format!("{wanted} ready brokers"), async || {
            let pods = self.pods.pods();
            let mut ready = 0;
            for address in pods.iter().filter_map(|pod| pod.address("admin")) {
                let answer = http.get(format!("http://{address}/readyz")).send().await;
                ready += usize::from(answer.is_ok_and(|answer| answer.status().is_success()));
            }
            let output = pods.iter().map(|pod| pod.describe()).collect::<String>();
            if ready == wanted && pods.len() == wanted { Attempt::Done(()) } else { Attempt::NotYet(output) }
        })
        .await
    }

    async fn certificate(&self) -> Result<ByteString> {
        let secrets: Api<Secret> = Api::namespaced(self.cluster.admin().await?, &self.home);
        let data = secrets.get("brokkr-tls").await?.data.context("data")?;
        data.get("ca.crt").cloned().context("ca.crt")
    }
}

#[tokio::test]
async fn brokers_of_the_chart_migrate_serve_with_tls_and_are_upgraded() -> Result<()> {
    let here = Installation::prepare().await?;
    here.install(&earlier_chart("brokkr", &here.scratch).await?, 2).await?;
    here.ready(2).await?;

    // Log in with the commands of the chart's notes.
    let token = here.type_notes().await?;
    let authority = here.certificate().await?;
    let authority_file = here.scratch.write("ca.crt", &authority.0)?;
    let logged_in = async || -> Result<()> {
        for pod in here.pods.pods() {
            let cli = Cli::new()?;
            let url = format!("https://{}", pod.address("api").context("a port for the API")?);
            cli.login(&url, &token, &authority_file).await.with_context(|| pod.describe())?;
            cli.run(["agent", "list"]).await?.ok()?;
        }
        Ok(())
    };
    logged_in().await?;

    // The upgraded broker keeps its certificate, and its Pod has no token for the API server.
    here.install(&chart("brokkr"), 1).await?;
    here.ready(1).await?;
    assert_eq!(here.certificate().await?, authority);
    logged_in().await?;
    let accounts = ["get", "pods", "-n", &here.home, "-o", "jsonpath={..volumes[*].projected}"];
    assert_eq!(here.cluster.kubectl(accounts).await?.ok()?.stdout, "");

    here.cluster.helm(["uninstall", "brokkr", "-n", &here.home]).await?.ok()?;
    here.pods.gone(PROGRAM).await
}

/// The API server accepts everything that the chart can render, with strict validation.
#[tokio::test]
async fn the_api_server_accepts_the_rendered_broker_chart() -> Result<()> {
    let (cluster, home, scratch) = (Cluster::shared().await?, unique("brokkr-chart"), Scratch::new("chart")?);
    cluster.kubectl(["create", "namespace", &home]).await?.ok()?;
    let named = "database.existingSecret.name=d,tls.existingSecret=t,secretKey.existingSecret.name=s";
    let full = format!(
        "{named},ingress.enabled=true,ingress.host=b.example,ingress.tlsSecret=i,ingress.className=nginx,\
         config.trustedProxies={{10.0.0.0/8,::1}},config.eventDays=7,config.traces=http://c.example:4318,\
         migrations.existingSecret.name=m,migrations.servingRole=r,nodeSelector.disk=fast,priorityClassName=high,podLabels.team=a,\
         networkPolicy.metricsFrom[0].podSelector.matchLabels.app=p,networkPolicy.egress[0].ports[0].port=5432,\
         service.type=LoadBalancer,service.annotations.kind=internal,imagePullSecrets[0].name=r,\
         tolerations[0].key=a,tolerations[0].operator=Exists,extraEnv[0].name=A,extraEnv[0].value=b"
    );
    for values in [
        named,
        &full,
        "evaluation.enabled=true,dashboards.enabled=true",
        "evaluation.enabled=true",
        "evaluation.enabled=true,evaluation.storage=",
    ] {
        let chart = chart("brokkr");
        let chart = chart.to_str().context("a path as text")?;
        let rendered = helm(&["template", "brokkr", chart, "-n", &home, "--set", values]).await?.ok()?;
        let file = scratch.write("rendered.yaml", rendered.stdout)?;
        let file = file.to_str().context("a path as text")?;
        let strictly = ["apply", "--dry-run=server", "--validate=strict", "-f", file];
        cluster.kubectl(strictly).await?.ok().with_context(|| values.to_owned())?;
    }
    Ok(())
}
