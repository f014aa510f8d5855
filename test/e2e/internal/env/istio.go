//go:build linux

package env

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// IstioCRDs returns the file with Istio's definitions, of the very version whose types
// mesh/istio renders with.
func IstioCRDs(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatalf("where is istio.io/api: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "kubernetes", "customresourcedefinitions.gen.yaml")
}
