//! The catalog of engines. Their versions are only in the `go.mod` files, with one exception: the version that Kubernetes
//! reports is set at build time.

/// One Go module of this repository, and the binaries that are built from it.
#[derive(Debug)]
pub struct Module {
    pub name: &'static str,
    /// The folder of its `go.mod`, from the root of the clone.
    pub folder: &'static str,
    pub binaries: &'static [Binary],
    /// Linker flags, in addition to those that drop the symbol tables.
    pub link: &'static str,
    /// Data files that the binary needs at run time.
    pub data: Option<Data>,
}

/// One program to build.
#[derive(Debug)]
pub struct Binary {
    pub name: &'static str,
    pub package: &'static str,
}

/// Files of a dependency that are copied beside the binaries, so that running them needs no Go.
#[derive(Debug)]
pub struct Data {
    /// The Go module that ships the files.
    pub module: &'static str,
    /// Folders inside that module; every `<prefix>*.yaml` in them is copied.
    pub folders: &'static [(&'static str, &'static str)],
    /// The folder in the cache that they are copied to.
    pub into: &'static str,
}

/// The engines for tests.
pub const MODULES: &[Module] = &[
    Module {
        name: "etcd",
        folder: "engines/etcd",
        binaries: &[Binary { name: "etcd", package: "go.etcd.io/etcd/server/v3" }],
        link: "",
        data: None,
    },
    Module {
        name: "kubernetes",
        folder: "engines/kubernetes",
        binaries: &[
            Binary { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
            Binary {
                name: "kube-controller-manager",
                package: "k8s.io/kubernetes/cmd/kube-controller-manager",
            },
            Binary { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler" },
            Binary { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl" },
        ],
        // Without the stamp, the server calls itself v0.0.0-master and clients refuse its features.
        link: "-X k8s.io/component-base/version.gitVersion=v1.36.3",
        data: None,
    },
    Module {
        name: "kwok",
        folder: "engines/kwok",
        binaries: &[Binary { name: "kwok", package: "sigs.k8s.io/kwok/cmd/kwok" }],
        link: "",
        // kwok needs stages, which define how pods and nodes change their state.
        data: Some(Data {
            module: "sigs.k8s.io/kwok",
            folders: &[
                ("kustomize/stage/pod/fast", "pod-"),
                ("kustomize/stage/node/fast", "node-"),
                ("kustomize/stage/node/heartbeat-with-lease", "node-"),
            ],
            into: "stages",
        }),
    },
    // Installs the charts, as users do.
    Module {
        name: "helm",
        folder: "engines/helm",
        binaries: &[Binary { name: "helm", package: "helm.sh/helm/v4/cmd/helm" }],
        link: "",
        data: None,
    },
];

/// Flux's apply engine in a small program, with which the agent is compared. Only benchmarks need and build it.
pub const FLUX: Module = Module {
    name: "flux",
    folder: "bench/flux",
    binaries: &[Binary { name: "flux-apply", package: "." }],
    link: "",
    data: None,
};

impl Module {
    /// Returns the complete `-ldflags` value.
    pub fn link_flags(&self) -> String {
        format!("-s -w {}", self.link).trim_end().to_owned()
    }
}
