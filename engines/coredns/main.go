// Cluster DNS for real nodes: CoreDNS with the few plugins that a cluster needs. Its default build links the clients of
// three cloud providers, which takes minutes and which no test uses.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order of the plugins in a request.
	dnsserver.Directives = []string{"ready", "errors", "kubernetes"}
	coremain.Run()
}
