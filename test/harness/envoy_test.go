//go:build linux

package harness_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

func TestEnvoy(t *testing.T) {
	harnesstest.SkipMissing(t, "envoy")
	h := harnesstest.New(t)
	admin, err := h.Address()
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(admin)
	if err != nil {
		t.Fatal(err)
	}
	file := h.Path("envoy.yaml")
	bootstrap := fmt.Sprintf("admin: {address: {socket_address: {address: %s, port_value: %s}}}\n", host, port)
	if err := os.WriteFile(file, []byte(bootstrap), 0o600); err != nil {
		t.Fatal(err)
	}
	envoy, err := h.StartEnvoy(t.Context(), harness.EnvoyConfig{Name: "envoy", File: file, AdminAddress: admin})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.CheckLoopback(); err != nil {
		t.Error(err)
	}
	if err := envoy.Restart(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEnvoyWithAdminOnASocket(t *testing.T) {
	harnesstest.SkipMissing(t, "envoy")
	h := harnesstest.New(t)
	file, socket := h.Path("envoy.yaml"), h.Path("admin.sock")
	if err := os.WriteFile(file, []byte("admin: {address: {pipe: {path: "+socket+", mode: 0600}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := "unix://" + socket
	if _, err := h.StartEnvoy(t.Context(), harness.EnvoyConfig{Name: "envoy", File: file, AdminAddress: admin, Concurrency: 2}); err != nil {
		t.Fatal(err)
	}
	if body, err := harness.EnvoyAdmin(t.Context(), admin, "/ready"); err != nil || string(body) != "LIVE\n" {
		t.Errorf("GET /ready = %q, %v", body, err)
	}
	if _, err := harness.EnvoyAdmin(t.Context(), admin, "/absent"); err == nil {
		t.Error("a path that does not exist is no error")
	}
}
