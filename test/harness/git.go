//go:build linux

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Repository is a local git repository that Argo CD reads by its file URL.
type Repository struct {
	// Dir is the work tree.
	Dir string
	// URL is Dir as a file URL.
	URL string

	git string
	env []string
}

// Branch is the only branch of a Repository.
const Branch = "main"

// GuestbookPath is the folder of the application of GuestbookFiles.
const GuestbookPath = "guestbook"

// GuestbookFiles returns an application with a Deployment, a Service and a
// ConfigMap, by file name.
func GuestbookFiles() map[string]string {
	return map[string]string{
		GuestbookPath + "/configmap.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: guestbook
data:
  greeting: hello
`,
		GuestbookPath + "/deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: guestbook
  labels: {app: guestbook}
spec:
  replicas: 2
  selector:
    matchLabels: {app: guestbook}
  template:
    metadata:
      labels: {app: guestbook}
    spec:
      containers:
      - name: guestbook
        image: registry.invalid/guestbook:1 # kwok pulls nothing
        ports: [{containerPort: 8080}]
        envFrom: [{configMapRef: {name: guestbook}}]
`,
		GuestbookPath + "/service.yaml": `apiVersion: v1
kind: Service
metadata:
  name: guestbook
spec:
  selector: {app: guestbook}
  ports: [{port: 80, targetPort: 8080}]
`,
	}
}

// NewRepository creates a repository with one commit of the files, whose names are
// relative paths. A repository that exists is used as it is and gets a commit only if
// the files differ.
func (h *Harness) NewRepository(ctx context.Context, name string, files map[string]string) (*Repository, error) {
	git, err := h.tools.Path("git")
	if err != nil {
		return nil, err
	}
	dir := h.Path(name)
	r := &Repository{
		Dir: dir,
		URL: "file://" + dir,
		git: git,
		env: []string{
			"PATH=" + os.Getenv("PATH"),
			// The user's own settings (hooks, signing) stay out.
			"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
			"GIT_AUTHOR_NAME=demo", "GIT_AUTHOR_EMAIL=demo@argomesh.invalid",
			"GIT_COMMITTER_NAME=demo", "GIT_COMMITTER_EMAIL=demo@argomesh.invalid",
		},
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		if _, err := r.Git(ctx, "init", "--quiet", "--initial-branch="+Branch); err != nil {
			return nil, err
		}
	}
	_, err = r.Commit(ctx, "add application", files)
	return r, err
}

// Commit writes the files and commits the work tree. It returns the commit, the
// existing one if nothing differs.
func (r *Repository) Commit(ctx context.Context, message string, files map[string]string) (string, error) {
	for name, content := range files {
		path := filepath.Join(r.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	if _, err := r.Git(ctx, "add", "--all"); err != nil {
		return "", err
	}
	changes, err := r.Git(ctx, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changes != "" {
		if _, err := r.Git(ctx, "commit", "--quiet", "--message", message); err != nil {
			return "", err
		}
	}
	return r.Git(ctx, "rev-parse", "HEAD")
}

// Git runs git in the work tree and returns its output, trimmed.
func (r *Repository) Git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.git, args...)
	cmd.Dir = r.Dir
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
