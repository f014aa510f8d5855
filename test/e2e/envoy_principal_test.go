//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// The real principal programs the Envoy beside it, and Envoy serves on when that
// principal is killed and another comes.
func TestEnvoyOfAPrincipal(t *testing.T) {
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver")
	t.Parallel()
	ctx, h := t.Context(), harnesstest.New(t)
	hub, err := startQuietControlPlane(ctx, h, "hub")
	if err != nil {
		t.Fatal(err)
	}
	identities, err := h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: "spire", TrustDomain: trustDomain, CADir: h.Path("ca"), Entries: []string{principalID},
	})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := h.Address()
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix://" + h.Path("xds.sock")
	principal, err := h.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: hub, WorkloadAPI: identities, Settings: harness.Settings{
		"envoy.listen": socket, "envoy.stream": stream, "envoy.stream_upstream": "unix://" + h.Path("stream.sock"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := h.StartSidecar(ctx, harness.SidecarConfig{Name: "envoy", XDS: socket, WorkloadAPI: identities.Socket})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(trustDomain), CADir: h.Path("ca")})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authority.Sign(devworkload.Leaf{URIs: []string{idOf(managed)}})
	if err != nil {
		t.Fatal(err)
	}
	handshake := func() error {
		config := tlsconfig.TLSClientConfig(authority.Bundle().X509Bundle(), tlsconfig.AuthorizeID(spiffeid.RequireFromString(principalID)))
		config.Certificates, config.NextProtos = []tls.Certificate{certificate}, []string{"h2"}
		dialer := tls.Dialer{Config: config}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", stream)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	connected := func() error {
		n, err := metric(ctx, principal.AdminAddress, "argomesh_xds_streams")
		if err == nil && n != 1 {
			err = fmt.Errorf("%v Envoys are connected", n)
		}
		return err
	}
	if err := handshake(); err != nil {
		t.Error(err)
	}
	eventually(t, "the principal knows its Envoy", connected)
	if err := principal.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := handshake(); err != nil {
		t.Errorf("without a principal: %v", err)
	}
	if err := principal.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another principal knows the Envoy", connected)
	if err := handshake(); err != nil {
		t.Error(err)
	}
	f := &front{envoy: envoy}
	for name, want := range map[string]float64{
		"listener_manager.listener_added":    2, // with that for statistics
		"listener_manager.listener_modified": 0, "listener_manager.listener_removed": 0,
	} {
		if n := f.stat(t, name); n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
}
