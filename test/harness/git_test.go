//go:build linux

package harness_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

func TestRepository(t *testing.T) {
	harnesstest.SkipMissing(t, "git")
	h := harnesstest.New(t)
	repo, err := h.NewRepository(t.Context(), "repository", harness.GuestbookFiles())
	if err != nil {
		t.Fatal(err)
	}
	first, err := repo.Git(t.Context(), "rev-parse", harness.Branch)
	if err != nil {
		t.Fatal(err)
	}
	same, err := repo.Commit(t.Context(), "nothing new", harness.GuestbookFiles())
	if err != nil || same != first {
		t.Errorf("commit without a change = %s, %v, want %s", same, err, first)
	}
	file := harness.GuestbookPath + "/configmap.yaml"
	second, err := repo.Commit(t.Context(), "change", map[string]string{file: "kind: ConfigMap\n"})
	if err != nil || second == first {
		t.Errorf("commit of a change = %s, %v", second, err)
	}
	shown, err := repo.Git(t.Context(), "show", second+":"+file)
	if err != nil || shown != "kind: ConfigMap" {
		t.Errorf("committed file = %q, %v", shown, err)
	}
}

func TestFreshSparesForeignFolders(t *testing.T) {
	tools := harnesstest.Tools(t)
	dir := t.TempDir()
	precious := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := harness.New(harness.Config{Dir: dir, Tools: tools, Fresh: true}); err == nil {
		t.Error("New() takes over a folder with somebody's files")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestFreshRemovesTheLastRun(t *testing.T) {
	tools := harnesstest.Tools(t)
	dir := filepath.Join(t.TempDir(), "work")
	for run := range 2 {
		h, err := harness.New(harness.Config{Dir: dir, Tools: tools, Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(h.Path("data")); err == nil {
			t.Errorf("run %d finds data of the run before", run)
		}
		if err := os.WriteFile(h.Path("data"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
