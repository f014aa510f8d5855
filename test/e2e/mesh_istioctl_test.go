//go:build linux && matrix

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// Istio's own validation and analysis read everything that is rendered for it.
func TestIstioctlTakesWhatIsRendered(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "istioctl")
	for _, file := range meshGolden(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			out, err := istioctl(t, "validate", "-f", file)
			if err != nil || bytes.Contains(bytes.ToLower(out), []byte("warning")) {
				t.Errorf("istioctl validate: %v\n%s", err, out)
			}
			// Offline there is no gateway workload and no Service, which it may miss.
			out, err = istioctl(t, "analyze", "--use-kube=false", file)
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "[IST") && !strings.Contains(line, "[IST0101]") && !strings.Contains(line, "[IST0102]") {
					t.Errorf("istioctl analyze: %v: %s", err, line)
				}
			}
		})
	}
}

// The validation above can fail.
func TestIstioctlRefusesNonsense(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "istioctl")
	raw, err := os.ReadFile(filepath.Join(meshGoldenDir, "gateway.out.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	good := string(raw)
	for title, change := range map[string][2]string{
		"no port":          {"number: 443", "number: 0"},
		"an unknown field": {"mtls:", "mutual:"},
		"no mode of TLS":   {"mode: STRICT", "mode: SOMETIMES"},
	} {
		t.Run(title, func(t *testing.T) {
			if !strings.Contains(good, change[0]) {
				t.Fatalf("nothing that is rendered has %q", change[0])
			}
			file := filepath.Join(t.TempDir(), "objects.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(good, change[0], change[1])), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := istioctl(t, "validate", "-f", file); err == nil {
				t.Errorf("Istio takes it:\n%s", out)
			}
		})
	}
}

// istioctl runs a command without any cluster.
func istioctl(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	path, err := harnesstest.Tools(t).Path("istioctl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+filepath.Join(dir, "none"))
	return cmd.CombinedOutput()
}
