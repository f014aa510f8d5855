//go:build linux && cluster

package cluster

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// argocdParts are the names by which Argo CD's one program is called in its pods.
var argocdParts = []string{
	"argocd-server", "argocd-repo-server", "argocd-application-controller", "argocd-applicationset-controller",
	"argocd-notifications", "argocd-dex", "argocd-cmp-server",
}

// makeArgoCDImages makes the images that the manifests of "--with argocd" name. In that of Dex a program that does
// nothing has its name: Argo CD's program, which its pod has from elsewhere, starts it.
func (w *clusterEnv) makeArgoCDImages(t *testing.T) {
	t.Helper()
	program := func(name string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	tool := func(name string) string {
		path, err := w.h.Tools().Path(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	argocd := newContent()
	argocd.add(t, tool("argocd"), "/usr/local/bin/argocd")
	for _, name := range argocdParts {
		argocd.links["/usr/local/bin/"+name] = "argocd"
	}
	source := strings.TrimSpace(run(t, "", "go", "-C", filepath.Join(w.h.Tools().Checkout(), "test", "tools", "argocd"),
		"list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-cd/v3"))
	for _, name := range []string{"git-verify-wrapper.sh", "gpg-wrapper.sh"} {
		argocd.add(t, filepath.Join(source, "hack", name), "/usr/local/bin/"+name)
	}
	for _, name := range []string{"sh", "cp", "ln"} {
		argocd.add(t, program(name), "/bin/"+name)
	}
	for _, name := range []string{"gpg", "gpg-agent"} {
		argocd.add(t, program(name), "/usr/bin/"+name)
	}
	argocd.add(t, w.workload(), "/usr/bin/tini")
	argocd.add(t, tool("git"), "/usr/bin/git")
	for _, name := range []string{"git-upload-pack", "git-receive-pack"} {
		argocd.links["/usr/bin/"+name] = "git"
	}
	argocd.addTree(t, firstOf(t, "/usr/lib/git-core", "/usr/libexec/git-core"))
	redis := newContent()
	redis.add(t, tool("redis-server"), "/usr/bin/redis-server")
	dex := newContent()
	dex.add(t, tool("argocd"), "/argocd")
	delete(dex.files, "/argocd") // but for what it is linked to
	dex.add(t, w.workload(), "/usr/local/bin/dex")
	argocd.folder = "/tmp" // in which our build has the socket of the repo server for passwords
	for _, reference := range w.stockImages(t) {
		switch {
		case strings.Contains(reference, "/argocd:"):
			w.push(t, reference, argocd.image(t, "999:999"))
		case strings.Contains(reference, "/dex:"):
			w.push(t, reference, dex.image(t, "1001:1001"))
		case strings.Contains(reference, "/redis:"):
			w.push(t, reference, redis.image(t, "999:999", "/usr/bin/redis-server"))
		default:
			t.Fatalf("what is in image %s of Argo CD's manifests?", reference)
		}
	}
}

// stockImages are the images that Argo CD's own manifests name, which agentctl has in it.
func (w *clusterEnv) stockImages(t *testing.T) []string {
	t.Helper()
	file, err := os.Open(filepath.Join(
		w.h.Tools().Checkout(), "cmd", "agentctl", "internal", "manifests", "archives", "argo-cd.tar.gz"))
	if err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	defer func() { _ = file.Close() }() // only read from
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(packed); ; {
		header, err := archive.Next()
		if err != nil {
			t.Fatalf("look for install.yaml: %v", err)
		}
		if header.Name != "install.yaml" {
			continue
		}
		manifest, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		var references []string
		for _, found := range regexp.MustCompile(`(?m)^ +image: (\S+)$`).FindAllSubmatch(manifest, -1) {
			references = append(references, string(found[1]))
		}
		slices.Sort(references)
		return slices.Compact(references)
	}
}

// startRepository serves a repository to both networks.
func (w *clusterEnv) startRepository(t *testing.T) {
	repository, err := w.h.NewRepository(t.Context(), "repository", map[string]string{"app/app.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: speaker}
spec:
  selector: {matchLabels: {app: speaker}}
  template:
    metadata: {labels: {app: speaker}}
    spec:
      containers: [{name: speaker, image: "argomesh.test/workload:1"}]
`})
	if err != nil {
		t.Fatal(err)
	}
	git, err := w.h.Tools().Path("git")
	if err != nil {
		t.Fatal(err)
	}
	w.hub.run(t, "git", func(ctx context.Context) error {
		conn, err := w.hub.spaces.netns().dial(ctx, wanHub+":9418")
		if err != nil {
			return err
		}
		return conn.Close()
	}, git, "daemon", "--reuseaddr", "--export-all", "--listen="+wanHub, "--base-path="+filepath.Dir(repository.Dir))
	w.repository = "git://" + gitHost + "/" + filepath.Base(repository.Dir)
}
