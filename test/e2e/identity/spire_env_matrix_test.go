//go:build linux && matrix

package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
)

// spireServerConfig and spireAgentConfig are those of the release, with what differs
// from trust domain to trust domain: folder, trust domain, and ports.
const (
	spireServerConfig = `
server {
  trust_domain = %[2]q
  bind_address = "127.0.0.1"
  bind_port = "%[3]d"
  socket_path = "%[1]s/server.sock"
  data_dir = "%[1]s"
  log_level = "INFO"
  federation {
    bundle_endpoint {
      address = "127.0.0.1"
      port = %[4]d
      refresh_hint = "10s"
      profile "https_spiffe" {}
    }
  }
}
plugins {
  DataStore "sql" {
    plugin_data {
      database_type = "sqlite3"
      connection_string = "%[1]s/server.sqlite3"
    }
  }
  NodeAttestor "join_token" {
    plugin_data {}
  }
  KeyManager "memory" {
    plugin_data {}
  }
}
`
	spireAgentConfig = `
agent {
  trust_domain = %[2]q
  server_address = "127.0.0.1"
  server_port = "%[3]d"
  socket_path = "%[1]s/agent.sock"
  trust_bundle_path = "%[1]s/bootstrap.pem"
  data_dir = "%[1]s/agent"
  log_level = "INFO"
}
plugins {
  NodeAttestor "join_token" {
    plugin_data {}
  }
  KeyManager "disk" {
    plugin_data {
      directory = "%[1]s/agent"
    }
  }
  WorkloadAttestor "unix" {
    plugin_data {
      discover_workload_path = true
      workload_size_limit = -1
    }
  }
}
`
)

// spireDomain is one trust domain: a SPIRE server, and a SPIRE agent whose workloads are
// told apart by their programs.
type spireDomain struct {
	h      *harness.Harness
	name   string // of the trust domain
	folder string
	node   string // SPIFFE ID of the node, the parent of its workloads
	api    string // the server's API as its administrator on the machine has it
	tcp    string // and as others have it
	bundle string // URL of its bundle
	agent  *harness.WorkloadAPI
}

// startSPIRE starts both, and returns when the agent is attested.
func startSPIRE(t *testing.T, h *harness.Harness, short, name string) *spireDomain {
	t.Helper()
	ctx := t.Context()
	d := &spireDomain{h: h, name: name, folder: h.Path(short), node: "spiffe://" + name + "/nodes/" + short}
	if err := os.MkdirAll(filepath.Join(d.folder, "agent"), 0o700); err != nil {
		t.Fatal(err)
	}
	port, err := h.Port()
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := h.Port()
	if err != nil {
		t.Fatal(err)
	}
	d.api, d.tcp = "unix://"+d.path("server.sock"), fmt.Sprint("127.0.0.1:", port)
	d.bundle = fmt.Sprintf("https://127.0.0.1:%d/", endpoint)
	d.write(t, "server.conf", fmt.Sprintf(spireServerConfig, d.folder, name, port, endpoint))
	d.write(t, "agent.conf", fmt.Sprintf(spireAgentConfig, d.folder, name, port))

	if _, err = h.Start(ctx, harness.Command{
		Name: "spire-server-" + short, Path: d.program(t, "spire-server"), Args: []string{"run", "-config", d.path("server.conf")},
		Ready: func(ctx context.Context) error {
			_, err := d.ctl(ctx, "healthcheck")
			return err
		},
	}); err != nil {
		t.Fatal(err)
	}
	d.write(t, "bootstrap.pem", d.must(t, "bundle", "show"))
	token := found(t, regexp.MustCompile(`Token: (\S+)`), d.must(t, "token", "generate", "-spiffeID", d.node))
	program := d.program(t, "spire-agent")
	agent, err := h.Start(ctx, harness.Command{
		Name: "spire-agent-" + short, Path: program, Args: []string{"run", "-config", d.path("agent.conf"), "-joinToken", token},
		Ready: func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, program, "healthcheck", "-socketPath", d.path("agent.sock")).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.agent = &harness.WorkloadAPI{Process: agent, Socket: "unix://" + d.path("agent.sock")}
	return d
}

func (d *spireDomain) path(name string) string { return filepath.Join(d.folder, name) }

func (d *spireDomain) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(d.path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (d *spireDomain) program(t *testing.T, name string) string {
	t.Helper()
	path, err := d.h.Tools().Path(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ctl runs a command of spire-server, as a person beside the server does.
func (d *spireDomain) ctl(ctx context.Context, args ...string) (string, error) {
	program, err := d.h.Tools().Path("spire-server")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, program, append(args, "-socketPath", d.path("server.sock"))...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("spire-server %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (d *spireDomain) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.ctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// document writes the bundle as the server has it now into a folder, under the name that
// a principal that pushes bundles expects, and returns the file.
func (d *spireDomain) document(t *testing.T, folder string) string {
	t.Helper()
	file := filepath.Join(folder, d.name+".json")
	err := errors.Join(
		os.WriteFile(file+".new", []byte(d.must(t, "bundle", "show", "-format", "spiffe")), 0o600),
		os.Rename(file+".new", file),
	)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

var authorityID = regexp.MustCompile(`"authority_id":\s*"([^"]+)"`)

// prepare makes the next authority for X.509-SVIDs, which does not sign yet.
func (d *spireDomain) prepare(t *testing.T) (id string) {
	t.Helper()
	return found(t, authorityID, d.must(t, "localauthority", "x509", "prepare", "-output", "json"))
}

// activate has the authority sign from now on.
func (d *spireDomain) activate(t *testing.T, id string) {
	t.Helper()
	d.must(t, "localauthority", "x509", "activate", "-authorityID", id)
}

// found returns what a pattern captures in a text.
func found(t *testing.T, pattern *regexp.Regexp, text string) string {
	t.Helper()
	match := pattern.FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("no %s in:\n%s", pattern, text)
	}
	return match[1]
}
