//go:build linux && cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

const (
	// dnsService is the address of a cluster's DNS server.
	dnsService    = "10.96.0.10"
	clusterDomain = "cluster.local"
	dnsImage      = "argomesh.test/coredns:1"
	// principalHost and gitHost are names that the DNS outside of the clusters has for the hub's node.
	principalHost = "argomesh.hub.test"
	gitHost       = "git.hub.test"
)

// outside is what the DNS server outside of the clusters is told: its address, and the file of its zone, which is all
// there is. What has no entry in a zone is unknown; the plugins hosts and template do not go together, since CoreDNS
// asks template first.
const outside = `
. {
	bind %s
	file %s .
}
`

// zone is what that server knows.
const zone = `
.                 60 IN SOA outside.test. outside.test. 1 3600 600 86400 60
.                 60 IN NS  outside.test.
argomesh.hub.test. 60 IN A   ` + wanHub + `
git.hub.test.      60 IN A   ` + wanHub + `
`

// startDNS starts a DNS server that both networks reach, which all nodes ask, and has each cluster have its own as a
// pod, by the manifest that Kubernetes has of it.
func (w *clusterEnv) startDNS(t *testing.T) {
	program, err := w.h.Tools().Path("coredns")
	if err != nil {
		t.Fatal(err)
	}
	known, file := filepath.Join(w.hub.dir, "outside.zone"), filepath.Join(w.hub.dir, "outside.Corefile")
	if err := errors.Join(
		os.WriteFile(known, []byte(zone), 0o600),
		os.WriteFile(file, fmt.Appendf(nil, outside, wanHub, known), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	w.hub.run(t, "dns", func(ctx context.Context) error {
		_, err := w.hub.spaces.netns().lookup(ctx, wanHub, principalHost)
		return err
	}, program, "-conf", file)

	manifest, err := w.h.Tools().File("node", "addons/coredns.yaml")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		"__DNS__DOMAIN__", clusterDomain, "__DNS__SERVER__", dnsService, "__DNS__MEMORY__LIMIT__", "170Mi",
	).Replace(string(content))
	text = regexp.MustCompile(`(image: ).*/coredns:.*`).ReplaceAllString(text, "${1}"+dnsImage)
	for _, n := range []*node{w.hub, w.spoke} {
		if err := n.plane.ApplyYAML(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []*node{w.hub, w.spoke} {
		n.available(t, metav1.NamespaceSystem, "coredns")
		for _, name := range []string{"kubernetes.default.svc." + clusterDomain, principalHost} {
			harnesstest.Eventually(t, patience, n.name+"'s DNS knows "+name, func() error {
				_, err := n.spaces.netns().lookup(t.Context(), dnsService, name)
				return err
			})
		}
		var unknown *net.DNSError
		found, err := n.spaces.netns().lookup(t.Context(), dnsService, "nowhere.hub.test")
		if !errors.As(err, &unknown) || !unknown.IsNotFound {
			t.Errorf("%s's DNS says of a name that is not there: %v, %v", n.name, found, err)
		}
	}
}

// lookup asks a DNS server from n for the addresses of a name, as it is.
func (n netns) lookup(ctx context.Context, server, name string) ([]string, error) {
	dial := func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		err = n.within(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(server, "53"))
			return err
		})
		return conn, err
	}
	resolver := net.Resolver{PreferGo: true, Dial: dial}
	found, err := resolver.LookupHost(ctx, name+".")
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	return found, nil
}
