package kubeconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/kubeconfig"
)

const file = `apiVersion: v1
kind: Config
clusters:
- name: hub
  cluster: {server: "https://127.0.0.1:6443"}
- name: edge
  cluster: {server: "https://127.0.0.1:6444"}
users:
- name: admin
  user: {token: t}
contexts:
- name: hub
  context: {cluster: hub, user: admin}
- name: edge
  context: {cluster: edge, user: admin}
- name: dangling
  context: {cluster: gone, user: admin}
`

func TestLoad(t *testing.T) {
	path := write(t, file+"current-context: hub\n")
	for contextName, server := range map[string]string{"": "https://127.0.0.1:6443", "edge": "https://127.0.0.1:6444"} {
		got, err := kubeconfig.Load(config.Kubernetes{Kubeconfig: path, Context: contextName, QPS: 5, Burst: 7}, "argomesh-principal/v1")
		if err != nil {
			t.Fatalf("Load(context %q) error: %v", contextName, err)
		}
		if got.Host != server || got.BearerToken != "t" || got.QPS != 5 || got.Burst != 7 || got.UserAgent != "argomesh-principal/v1" {
			t.Errorf("Load(context %q) = %v", contextName, got)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // outside a Kubernetes cluster
	t.Setenv("KUBECONFIG", write(t, file+"current-context: hub\n"))
	for name, c := range map[string]struct {
		content, context, want string // want: PATH stands for the file
	}{
		"no current context": {file, "", "kubernetes.context: is not set, and PATH has no current context: use one of dangling, edge, hub"},
		"an unknown context": {file, "hubb", `kubernetes.context: "hubb" is not in PATH: use one of dangling, edge, hub`},
		"no context at all":  {"apiVersion: v1\nkind: Config\n", "", "kubernetes.kubeconfig: PATH holds no context: give the path of a complete kubeconfig"},
		"an empty file":      {"", "", "kubernetes.kubeconfig: PATH holds no context: give the path of a complete kubeconfig"},
		"a dangling context": {file, "dangling", "kubernetes.kubeconfig: PATH cannot be used: "},
		"another kind":       {"apiVersion: v1\nkind: Pod\n", "", "kubernetes.kubeconfig: PATH is not a kubeconfig: "},
		"broken YAML":        {"clusters: [", "", "kubernetes.kubeconfig: PATH is not a kubeconfig: "},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, c.content)
			_, err := kubeconfig.Load(config.Kubernetes{Kubeconfig: path, Context: c.context}, "test")
			check(t, err, strings.ReplaceAll(c.want, "PATH", path))
		})
	}
	t.Run("a missing file", func(t *testing.T) {
		_, err := kubeconfig.Load(config.Kubernetes{Kubeconfig: "/does/not/exist"}, "test")
		check(t, err, "kubernetes.kubeconfig: read /does/not/exist: no such file or directory: give the path of a readable kubeconfig")
	})
	t.Run("a folder", func(t *testing.T) {
		_, err := kubeconfig.Load(config.Kubernetes{Kubeconfig: "/"}, "test")
		check(t, err, "kubernetes.kubeconfig: read /: is a directory: give the path of a readable kubeconfig")
	})
	t.Run("nothing set outside a Kubernetes cluster", func(t *testing.T) {
		_, err := kubeconfig.Load(config.Kubernetes{}, "test")
		check(t, err, "kubernetes.kubeconfig: is not set, and this process does not run in a Kubernetes cluster: give the path of a kubeconfig")
	})
}

// check wants one line that begins with want.
func check(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Load() error\n got %v\nwant %s", err, want)
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
