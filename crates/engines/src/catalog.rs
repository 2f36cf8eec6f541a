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
    /// Build tags, separated by commas.
    pub tags: &'static str,
    /// Whether the binaries need no shared library, so that they run in an image without any.
    pub is_static: bool,
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

/// A module with nothing special about its build.
const PLAIN: Module =
    Module { name: "", folder: "", binaries: &[], link: "", tags: "", is_static: false, data: None };

/// The engines for tests.
pub const MODULES: &[Module] = &[
    Module {
        name: "etcd",
        folder: "engines/etcd",
        binaries: &[Binary { name: "etcd", package: "go.etcd.io/etcd/server/v3" }],
        ..PLAIN
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
            Binary { name: "kubelet", package: "k8s.io/kubernetes/cmd/kubelet" },
            Binary { name: "kube-proxy", package: "k8s.io/kubernetes/cmd/kube-proxy" },
        ],
        // Without the stamp, the server calls itself v0.0.0-master and clients refuse its features.
        link: "-X k8s.io/component-base/version.gitVersion=v1.36.3",
        ..PLAIN
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
        ..PLAIN
    },
    // The container runtime of real nodes. Debian's is too old for this kubelet.
    Module {
        name: "containerd",
        folder: "engines/containerd",
        binaries: &[
            Binary { name: "containerd", package: "github.com/containerd/containerd/v2/cmd/containerd" },
            Binary {
                name: "containerd-shim-runc-v2",
                package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            },
            Binary { name: "ctr", package: "github.com/containerd/containerd/v2/cmd/ctr" },
        ],
        // Leaves out the snapshotters that need libraries of the build machine.
        tags: "no_btrfs,no_devmapper,no_zfs",
        ..PLAIN
    },
    // Cluster DNS, and the program of test Pods: both run in images of their own.
    Module {
        name: "coredns",
        folder: "engines/coredns",
        binaries: &[Binary { name: "coredns", package: "." }],
        is_static: true,
        ..PLAIN
    },
    Module {
        name: "testpod",
        folder: "engines/testpod",
        binaries: &[Binary { name: "testpod", package: "." }],
        is_static: true,
        ..PLAIN
    },
    // Installs the charts, as users do.
    Module {
        name: "helm",
        folder: "engines/helm",
        binaries: &[Binary { name: "helm", package: "helm.sh/helm/v4/cmd/helm" }],
        ..PLAIN
    },
];

/// The programs of an older version of Kubernetes whose behaviour the agent depends on.
const CONTROL_PLANE: &[Binary] = &[
    Binary { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
    Binary { name: "kube-controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager" },
    // A newer one waits for ever for kinds that an older API server does not serve.
    Binary { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler" },
];

/// The older supported versions of Kubernetes, by their version. `BROKKR_KUBERNETES` selects one for a test run; it takes the
/// place of the same programs in [`MODULES`].
pub const OLDER_KUBERNETES: &[(&str, Module)] = &[
    (
        "1.30",
        Module {
            name: "kubernetes-1.30",
            folder: "engines/kubernetes-1.30",
            binaries: CONTROL_PLANE,
            link: "-X k8s.io/component-base/version.gitVersion=v1.30.14",
            ..PLAIN
        },
    ),
    (
        "1.33",
        Module {
            name: "kubernetes-1.33",
            folder: "engines/kubernetes-1.33",
            binaries: CONTROL_PLANE,
            link: "-X k8s.io/component-base/version.gitVersion=v1.33.13",
            ..PLAIN
        },
    ),
];

/// Flux's apply engine in a small program, with which the agent is compared. Only benchmarks need and build it.
pub const FLUX: Module = Module {
    name: "flux",
    folder: "bench/flux",
    binaries: &[Binary { name: "flux-apply", package: "." }],
    ..PLAIN
};

impl Module {
    /// Returns the complete `-ldflags` value.
    pub fn link_flags(&self) -> String {
        format!("-s -w {}", self.link).trim_end().to_owned()
    }
}
