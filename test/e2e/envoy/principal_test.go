//go:build linux

package envoy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// The real principal programs the Envoy beside it, and Envoy serves on when that
// principal is killed and another comes. Signing keys that are damaged keep no agent away.
func TestEnvoyOfAPrincipal(t *testing.T) {
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver")
	t.Parallel()
	ctx, h := t.Context(), harnesstest.New(t)
	hub, err := env.StartBareControlPlane(ctx, h, "hub", nil)
	if err != nil {
		t.Fatal(err)
	}
	identities, err := h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: "spire", TrustDomain: env.TrustDomain, CADir: h.Path("ca"), Entries: []string{env.PrincipalID},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.ApplyYAML(ctx, []byte(`apiVersion: v1
kind: Secret
metadata: {name: `+token.SecretName+`, namespace: `+harness.ArgoCDNamespace+`}
type: argomesh.io/token-keys
stringData: {keys.json: "{"}
`)); err != nil {
		t.Fatal(err)
	}
	stream, err := h.Address()
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := h.Address()
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix://" + h.Path("xds.sock")
	principal, err := h.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: hub, WorkloadAPI: identities, Settings: harness.Settings{
		"envoy.listen": socket, "envoy.stream": stream, "envoy.stream_upstream": "unix://" + h.Path("stream.sock"),
		"envoy.resource_proxy": proxy, "resource_proxy.listen": "unix://" + h.Path("proxy.sock"), "resource_proxy.audit.file": "",
		"resource_proxy.credentials.enabled": true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := h.StartSidecar(ctx, harness.SidecarConfig{Name: "envoy", XDS: socket, WorkloadAPI: identities.Socket})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain), CADir: h.Path("ca")})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authority.Sign(devworkload.Leaf{URIs: []string{env.SPIFFEID(env.Managed)}})
	if err != nil {
		t.Fatal(err)
	}
	accepts := func() *tls.Config {
		return tlsconfig.TLSClientConfig(authority.Bundle().X509Bundle(), tlsconfig.AuthorizeID(spiffeid.RequireFromString(env.PrincipalID)))
	}
	handshake := func() error {
		config := accepts()
		config.Certificates, config.NextProtos = []tls.Certificate{certificate}, []string{"h2"}
		dialer := tls.Dialer{Config: config}
		ctx, cancel := context.WithTimeout(ctx, env.Patience)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", stream)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	connected := func() error {
		n, err := env.Metric(ctx, principal.AdminAddress, "argomesh_xds_streams")
		if err == nil && n != 1 {
			err = fmt.Errorf("%v Envoys are connected", n)
		}
		return err
	}
	if err := handshake(); err != nil {
		t.Error(err)
	}
	env.Eventually(t, "the principal knows its Envoy", connected)
	if err := principal.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := handshake(); err != nil {
		t.Errorf("without a principal: %v", err)
	}
	if err := principal.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "another principal knows the Envoy", connected)
	if err := handshake(); err != nil {
		t.Error(err)
	}
	// answers asks Envoy's other listener with a token that no one signed.
	answers := func(want int) error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: accepts(), DisableKeepAlives: true}, Timeout: env.Patience}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+proxy+"/agents/edge-1/version", http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer e30.e30.e30")
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		if err := res.Body.Close(); err != nil || res.StatusCode != want {
			return fmt.Errorf("%s, want %d: %w", res.Status, want, err)
		}
		return nil
	}
	says := func(problem bool) error {
		code, body, err := env.Fetch(ctx, "http://"+principal.AdminAddress+"/readyz")
		named := strings.Contains(body, token.SecretName) && strings.Contains(body, "restore it, or delete it")
		if err != nil || code != http.StatusOK || named != problem {
			return fmt.Errorf("/readyz is %d, %s: %w", code, body, err)
		}
		return nil
	}
	env.Eventually(t, "/readyz names the Secret and the cure", func() error { return says(true) })
	env.Eventually(t, "no token is good", func() error { return answers(http.StatusForbidden) })
	clients, err := kubernetes.NewForConfig(hub.REST())
	if err != nil {
		t.Fatal(err)
	}
	if err := clients.CoreV1().Secrets(harness.ArgoCDNamespace).Delete(ctx, token.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "tokens are looked at", func() error { return answers(http.StatusUnauthorized) })
	env.Eventually(t, "nothing is wrong", func() error { return says(false) })
	f := &front{envoy: envoy}
	for name, want := range map[string]float64{
		"listener_manager.listener_added":    3, // with that for statistics
		"listener_manager.listener_modified": 0, "listener_manager.listener_removed": 0,
	} {
		if n := f.stat(t, name); n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
}
