package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
)

// What is printed reads back as what the library made. That the real Envoy takes it
// is shown in mesh/xds, and end to end in test/e2e.
func TestEnvoyBootstrap(t *testing.T) {
	out, _, err := agentctl(t, "envoy", "bootstrap", "--node-id", "n", "--stats", "127.0.0.1:9902", "--memory", "256Mi")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSON([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	got := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	address := func(s string) mesh.Address {
		a, err := mesh.ParseAddress(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	want, err := xds.Bootstrap(xds.BootstrapConfig{
		NodeID: "n", XDS: address("unix:///run/argomesh/xds.sock"), WorkloadAPI: address("unix:///run/spire/agent/api.sock"),
		Admin: address("unix:///run/argomesh/envoy-admin.sock"), Stats: address("127.0.0.1:9902"), MaxMemory: 256 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(want, got) {
		t.Errorf("it prints\n%s\nwant\n%s", got, want)
	}
}

func TestEnvoyBootstrapRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--admin 0.0.0.0:9901": "unix socket or on loopback",
		"--xds xds.sock":       "--xds: address",
		"--memory 1Mi":         "--memory",
		"--memory much":        "--memory",
		"--max-connections 0":  "--max-connections",
	} {
		t.Run(args, func(t *testing.T) {
			_, _, err := agentctl(t, append([]string{"envoy", "bootstrap"}, strings.Fields(args)...)...)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error is %v, want one with %q", err, want)
			}
		})
	}
}

// The init container of the chart writes a file, which Envoy must never see in part.
func TestEnvoyBootstrapOutput(t *testing.T) {
	want, _, err := agentctl(t, "envoy", "bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(file, []byte("of an earlier start"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := agentctl(t, "envoy", "bootstrap", "--output", file)
	if err != nil || out != "" {
		t.Fatalf("it says %q, %v", out, err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("the file has\n%s\nstandard output has\n%s", got, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	_, _, err = agentctl(t, "envoy", "bootstrap", "--output", filepath.Join(dir, "missing", "envoy.yaml"))
	if err == nil || !strings.Contains(err.Error(), "--output") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err = agentctl(t, "envoy", "bootstrap", "--output", filepath.Join(dir, "folder")); err == nil {
		t.Error("it replaced a folder")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind after an error: %v, %v", left, err)
	}
}
