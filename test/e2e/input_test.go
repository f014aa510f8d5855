//go:build linux

package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
)

// TestBadSettingsEndTheStart runs our binaries with one fault each: one line that
// names the key and the cure, and exit code 1.
func TestBadSettingsEndTheStart(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
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
		"principal: no kubeconfig":      {"principal", []string{"--config", w.principal.ConfigFile, "--kubernetes.kubeconfig", folder + "/none"}, []string{"kubernetes.kubeconfig"}},
		"principal: broken kubeconfig":  {"principal", []string{"--config", w.principal.ConfigFile, "--kubernetes.kubeconfig", write("k", "{")}, []string{"kubernetes.kubeconfig"}},
		"principal: a port in use":      {"principal", []string{"--config", w.principal.ConfigFile, "--stream.listen", taken.Addr().String(), "--admin.listen", "127.0.0.1:0"}, []string{"stream.listen", "in use"}},
		"principal: no workload socket": {"principal", []string{"--config", w.principal.ConfigFile, "--identity.socket", "unix://" + folder + "/no/such/folder.sock", "--admin.listen", "127.0.0.1:0", "--stream.listen", "127.0.0.1:0"}, []string{"identity.socket"}},
		"agent: no mode":                {"agent", []string{"--name", "x"}, []string{"mode", "managed or autonomous"}},
		"agent: an unknown key":         {"agent", []string{"--config", write("b.yaml", "principle: {}\n")}, []string{"principle", "principal"}},
		"agent: a port in use":          {"agent", []string{"--config", w.agents[managed].ConfigFile, "--admin.listen", taken.Addr().String()}, []string{"admin.listen", "in use"}},
		"agentctl: a wrong flag":        {"agentctl", []string{"agent", "list", "--nope"}, []string{"--nope"}},
		"agentctl: broken kubeconfig":   {"agentctl", []string{"--kubeconfig", write("c", "{"), "agent", "list"}, []string{"kubeconfig"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := w.h.Binary(c.program)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	w := theWorld(t)
	stream, err := w.h.Address()
	if err != nil {
		t.Fatal(err)
	}
	// In a namespace where nobody holds the Lease, so that neither stands by.
	programs := map[string][]string{
		"agent":     {"--config", w.agents[managed].ConfigFile, "--namespace", "default"},
		"principal": {"--kubernetes.kubeconfig", w.hub.Kubeconfig, "--stream.listen", stream, "--namespace", "default"},
	}
	for program, args := range programs {
		t.Run(program, func(t *testing.T) {
			p := w.startEarly(t, program, args)
			if program != "agent" {
				return
			}
			eventually(t, "its log tells a person what to do about the refusal", func() error {
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
func (w *world) startEarly(t *testing.T, program string, args []string) *harness.Process {
	t.Helper()
	ctx, name := t.Context(), "early-"+program
	path, err := w.h.Binary(program)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := w.h.Address()
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.h.Start(ctx, harness.Command{
		Name: name, Path: path,
		Args:  append(args, "--admin.listen", admin, "--identity.socket", "unix://"+w.h.Path(name+"-api.sock")),
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
	eventually(t, "it says that it is not ready, and why", func() error {
		code, body, err := fetch(ctx, "http://"+admin+"/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "identity.socket") {
			return errors.New(body)
		}
		return nil
	})
	// An identity that is registered for nobody: it must not take edge-1's place.
	if _, err := w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: name + "-api", TrustDomain: trustDomain, CADir: w.caDir, Entries: []string{idOf("nobody")},
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"principal": "\nready\n", "agent": "[-] principal: refused by the hub"}[program]
	eventually(t, "it goes on by itself", func() error {
		_, body, err := fetch(ctx, "http://"+admin+"/readyz")
		if err == nil && (!strings.Contains(body, want) || !strings.Contains(body, "[+] identity: ok\n")) {
			err = errors.New(body)
		}
		return err
	})
	return p
}

func TestMetricsAndHealth(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	for address, metric := range map[string]string{
		w.principal.AdminAddress:       "argomesh_stream_connections 2\n",
		w.agents[managed].AdminAddress: "argomesh_stream_up 1\n",
	} {
		for _, path := range []string{"/livez", "/readyz"} {
			if code, body, err := fetch(ctx, "http://"+address+path); err != nil || code != http.StatusOK {
				t.Errorf("GET %s: %d %s %v", path, code, body, err)
			}
		}
		eventually(t, "metric "+strings.TrimSpace(metric), func() error {
			_, body, err := fetch(ctx, "http://"+address+"/metrics")
			if err == nil && (!strings.Contains(body, metric) || !strings.Contains(body, "argomesh_svid_not_after_timestamp_seconds")) {
				err = errors.New("it is not among the metrics")
			}
			return err
		})
	}
}

func fetch(ctx context.Context, url string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(content), err
}
