package gitops

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Who writes to a repository, or answers for a hub, has no file written elsewhere.
func TestFilesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	repo, home := t.TempDir(), t.TempDir()
	profile := filepath.Join(home, ".bashrc")
	if err := os.WriteFile(profile, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(repo, "spokes", "edge-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(profile, filepath.Join(repo, "spokes", "edge-1", kustomization)); err != nil { // as git has it
		t.Fatal(err)
	}
	f := Files{Folder: repo, Out: io.Discard}
	err := f.Kustomize("spokes/edge-1", "argomesh-agent.yaml")
	if got, _ := os.ReadFile(profile); string(got) != "mine" || err == nil {
		t.Errorf("Kustomize() = %v, and the file outside says %q", err, got)
	}
	if err := f.Write(AgentsFolder, "../../../x.yaml", map[string]any{}); err == nil {
		t.Error("a name leads out of the folder")
	}
	if err := f.Write(AgentsFolder, "edge-1.yaml", map[string]any{}); err != nil {
		t.Error(err)
	}
}
