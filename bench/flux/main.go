// Command flux-apply applies a file of manifests by Flux's apply engine and prints how long that took.
//
// It is the peer that `cargo xtask bench agent` measures the agent against. Only ApplyAllStaged is timed: reading the
// file, connecting and discovery, which a running controller has behind it, are not. Requests are not throttled by the
// client.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

type result struct {
	Seconds float64        `json:"seconds"`
	Objects int            `json:"objects"`
	Actions map[string]int `json:"actions"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the cluster, and who to be there")
	file := flag.String("file", "", "the manifests")
	concurrency := flag.Int("concurrency", 1, "dry runs at the same time; 1 is the engine's default")
	flag.Parse()

	result, err := run(*kubeconfig, *file, *concurrency)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flux-apply:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, file string, concurrency int) (*result, error) {
	manager, err := connect(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot connect by %s: %w", kubeconfig, err)
	}
	manager.SetConcurrency(concurrency)

	source, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	objects, err := utils.ReadObjects(source)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	// As the controller does before it applies: else every Service and Deployment would look changed.
	if err := normalize.UnstructuredList(objects); err != nil {
		return nil, err
	}
	manager.SetOwnerLabels(objects, "bench", "default")

	warmUp(manager, objects)

	started := time.Now()
	changes, err := manager.ApplyAllStaged(context.Background(), objects, ssa.DefaultApplyOptions())
	took := time.Since(started)
	if err != nil {
		return nil, err
	}
	actions := map[string]int{}
	for _, entry := range changes.Entries {
		actions[entry.Action.String()]++
	}
	return &result{Seconds: took.Seconds(), Objects: len(objects), Actions: actions}, nil
}

// warmUp makes one dry run for each kind, so that connections are open and the kinds are known. The dry runs may fail,
// because the namespaces do not exist yet.
func warmUp(manager *ssa.ResourceManager, objects []*unstructured.Unstructured) {
	known := map[schema.GroupVersionKind]bool{}
	for _, object := range objects {
		if kind := object.GroupVersionKind(); !known[kind] {
			known[kind] = true
			_, _, _, _ = manager.Diff(context.Background(), object, ssa.DefaultDiffOptions())
		}
	}
}

func connect(kubeconfig string) (*ssa.ResourceManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// No client-side limit: the API server is what both engines are measured on.
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, err
	}
	kubeClient, err := client.New(config, client.Options{HTTPClient: httpClient, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(kubeClient, mapper, polling.Options{})
	owner := ssa.Owner{Field: "flux-bench", Group: "flux-bench.example.com"}
	return ssa.NewResourceManager(kubeClient, poller, owner), nil
}
