//go:build linux

package install

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestBadSettingsEndTheStart runs our binaries with one fault each: one line that
// names the key and the cure, and exit code 1.
func TestBadSettingsEndTheStart(t *testing.T) {
	t.Parallel()
	w := env.SharedArgo(t)
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	cases := map[string]struct {
		program string
		args    []string
		says    []string
	}{
		"principal: a wrong flag":       {"principal", []string{"--strem.listen=127.0.0.1:0"}, []string{"strem.listen", "stream.listen"}},
		"principal: an unknown key":     {"principal", []string{"--config", write("a.yaml", "stream: {lissten: x}\n")}, []string{"stream.lissten", "stream.listen"}},
		"principal: no kubeconfig":      {"principal", []string{"--config", w.Principal.ConfigFile, "--kubernetes.kubeconfig", folder + "/none"}, []string{"kubernetes.kubeconfig"}},
		"principal: broken kubeconfig":  {"principal", []string{"--config", w.Principal.ConfigFile, "--kubernetes.kubeconfig", write("k", "{")}, []string{"kubernetes.kubeconfig"}},
		"principal: a port in use":      {"principal", []string{"--config", w.Principal.ConfigFile, "--stream.listen", taken.Addr().String(), "--admin.listen", "127.0.0.1:0"}, []string{"stream.listen", "in use"}},
		"principal: no workload socket": {"principal", []string{"--config", w.Principal.ConfigFile, "--identity.socket", "unix://" + folder + "/no/such/folder.sock", "--admin.listen", "127.0.0.1:0", "--stream.listen", "127.0.0.1:0"}, []string{"identity.socket"}},
		"agent: no mode":                {"agent", []string{"--name", "x"}, []string{"mode", "managed or autonomous"}},
		"agent: an unknown key":         {"agent", []string{"--config", write("b.yaml", "principle: {}\n")}, []string{"principle", "principal"}},
		"agent: a port in use":          {"agent", []string{"--config", w.Agents[env.Managed].ConfigFile, "--admin.listen", taken.Addr().String()}, []string{"admin.listen", "in use"}},
		"agentctl: a wrong flag":        {"agentctl", []string{"agent", "list", "--nope"}, []string{"--nope"}},
		"agentctl: broken kubeconfig":   {"agentctl", []string{"--kubeconfig", write("c", "{"), "agent", "list"}, []string{"kubeconfig"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := w.Harness.Binary(c.program)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
			defer cancel()
			var complaint strings.Builder
			cmd := exec.CommandContext(ctx, path, c.args...)
			cmd.Stderr = &complaint
			err = cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("it ended with %v, want exit code 1\n%s", err, complaint.String())
			}
			lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
			var said []string
			for _, line := range lines {
				if !strings.HasPrefix(line, "{") { // the log of a start that got further
					said = append(said, line)
				}
			}
			if len(said) != 1 && c.says[0] != "mode" {
				t.Errorf("it says %d lines, want one:\n%s", len(said), strings.Join(said, "\n"))
			}
			for _, text := range c.says {
				if !strings.Contains(strings.Join(said, "\n"), text) {
					t.Errorf("it does not name %q:\n%s", text, strings.Join(said, "\n"))
				}
			}
		})
	}
}

// TestStartBeforeTheWorkloadAPI starts an agent whose socket does not exist yet:
// it waits, says so, and goes on by itself.
func TestStartBeforeTheWorkloadAPI(t *testing.T) {
	t.Parallel()
	w := env.SharedArgo(t)
	stream, err := w.Harness.Address()
	if err != nil {
		t.Fatal(err)
	}
	// In a namespace where no one holds the Lease, so that neither stands by.
	programs := map[string][]string{
		"agent":     {"--config", w.Agents[env.Managed].ConfigFile, "--namespace", "default"},
		"principal": {"--kubernetes.kubeconfig", w.Hub.Kubeconfig, "--stream.listen", stream, "--namespace", "default"},
	}
	for program, args := range programs {
		t.Run(program, func(t *testing.T) {
			p := startEarly(t, w, program, args)
			if program != "agent" {
				return
			}
			env.Eventually(t, "its log tells a person what to do about the refusal", func() error {
				content, err := os.ReadFile(p.LogFile())
				if err == nil && !strings.Contains(string(content), "register its SPIFFE ID") {
					err = errors.New("it does not")
				}
				return err
			})
		})
	}
}

// startEarly starts a program before its Workload API, and then that. The program ends
// with the test.
func startEarly(t *testing.T, w *env.Argo, program string, args []string) *harness.Process {
	t.Helper()
	ctx, name := t.Context(), "early-"+program
	path, err := w.Harness.Binary(program)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := w.Harness.Address()
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.Harness.Start(ctx, harness.Command{
		Name: name, Path: path,
		Args:  append(args, "--admin.listen", admin, "--identity.socket", "unix://"+w.Harness.Path(name+"-api.sock")),
		Ready: harness.HTTPReady("http://" + admin + "/livez"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	env.Eventually(t, "it says that it is not ready, and why", func() error {
		code, body, err := env.Fetch(ctx, "http://"+admin+"/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "identity.socket") {
			return errors.New(body)
		}
		return nil
	})
	// An identity that is registered for no one: it must not take edge-1's place.
	if _, err := w.Harness.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: name + "-api", TrustDomain: env.TrustDomain, CADir: w.CADir, Entries: []string{env.SPIFFEID("nobody")},
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"principal": "\nready\n", "agent": "[-] principal: refused by the hub"}[program]
	env.Eventually(t, "it goes on by itself", func() error {
		_, body, err := env.Fetch(ctx, "http://"+admin+"/readyz")
		if err == nil && (!strings.Contains(body, want) || !strings.Contains(body, "[+] identity: ok\n")) {
			err = errors.New(body)
		}
		return err
	})
	return p
}

func TestMetricsAndHealth(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	for address, metric := range map[string]string{
		w.Principal.AdminAddress:           "argomesh_stream_connections 2\n",
		w.Agents[env.Managed].AdminAddress: "argomesh_stream_up 1\n",
	} {
		for _, path := range []string{"/livez", "/readyz"} {
			if code, body, err := env.Fetch(ctx, "http://"+address+path); err != nil || code != http.StatusOK {
				t.Errorf("GET %s: %d %s %v", path, code, body, err)
			}
		}
		env.Eventually(t, "metric "+strings.TrimSpace(metric), func() error {
			_, body, err := env.Fetch(ctx, "http://"+address+"/metrics")
			if err == nil && (!strings.Contains(body, metric) || !strings.Contains(body, "argomesh_svid_not_after_timestamp_seconds")) {
				err = errors.New("it is not among the metrics")
			}
			return err
		})
	}
}
