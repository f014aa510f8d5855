package toolset

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryToolIsPinned(t *testing.T) {
	set, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	owner := make(map[string]string)
	for _, tool := range set.Tools() {
		if len(tool.Programs)+len(tool.Files) == 0 {
			t.Errorf("%s has neither program nor file", tool.Name)
		}
		for _, name := range tool.Names() {
			if other, taken := owner[name]; taken {
				t.Errorf("%s and %s both provide %s", other, tool.Name, name)
			}
			owner[name] = tool.Name
		}
		want := []string{"go.mod", "go.sum"}
		switch {
		case tool.Wheel:
			want = []string{"requirements.txt"}
		case tool.Local:
			want = []string{"main.go"}
		case tool.Group == Earlier:
			want = []string{"commit"}
		case tool.Interface():
			want = []string{"argo-ui.json", "pnpm-lock.yaml", "pnpm/package.json", "pnpm/package-lock.json"}
		}
		for _, file := range want {
			if _, err := os.Stat(filepath.Join(set.Source(tool), file)); err != nil {
				t.Errorf("pins of %s: %v", tool.Name, err)
			}
		}
		for _, program := range tool.Programs {
			if program.Stamp == "" {
				continue
			}
			mod, err := os.ReadFile(filepath.Join(set.Module(tool), "go.mod"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(mod), program.Module+" v") {
				t.Errorf("%s is stamped with the version of %s, which %s/go.mod does not require", program.Name, program.Module, tool.Name)
			}
		}
	}
}

func TestPinHash(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hash := func(tool Tool) string {
		t.Helper()
		sum, err := pinHash(tool, dir)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	tool := Tool{Name: "etcd", Programs: []Program{{Name: "etcd", Package: "example.org/etcd"}}}
	write("go.mod", "module m\n")
	first := hash(tool)
	if again := hash(tool); again != first {
		t.Errorf("the hash of the same pins is %s and %s", first, again)
	}
	write("main_test.go", "package main\n")
	write(".swap", "x")
	if sum := hash(tool); sum != first {
		t.Error("a test or a hidden file changes the hash")
	}
	write("go.sum", "s")
	second := hash(tool)
	if second == first {
		t.Error("a new file does not change the hash")
	}
	write("go.mod", "module n\n")
	third := hash(tool)
	if third == second {
		t.Error("a changed file does not change the hash")
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "stub", ".git"), 0o700), os.WriteFile(filepath.Join(dir, "stub", ".git", "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if hash(tool) != third {
		t.Error("a hidden folder changes the hash")
	}
	write(filepath.Join("stub", "stub.go"), "package stub\n")
	if fourth := hash(tool); fourth == third {
		t.Error("a file in a folder does not change the hash")
	} else {
		third = fourth
	}
	both, err := pinHash(tool, dir, filepath.Join(dir, "stub"))
	if err != nil || both == third {
		t.Errorf("a second folder does not change the hash: %v", err)
	}
	tool.Programs[0].Stamp = "-X a=b"
	if hash(tool) == third {
		t.Error("a changed recipe does not change the hash")
	}
}

func TestMissingSaysWhatToRun(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", "")
	set, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	for program, run := range map[string]string{
		"kube-apiserver": "make tools",
		"argocd-server":  "make tools",
		"redis-server":   "make tools",
		"controller-gen": "go run ./test/tools generators",
		"istioctl":       "go run ./test/tools istio",
		"argocd-ui":      "go run ./test/tools ui",
		"argocd-v3.2.6":  "go run ./test/tools argocd-3.2",
	} {
		_, err := set.Path(program)
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), run) || !strings.Contains(err.Error(), program) {
			t.Errorf("Path(%s) = %v, want ErrMissing with %q", program, err, run)
		}
	}
	if _, err := set.Files("argocd", "crds"); !errors.Is(err, ErrMissing) {
		t.Errorf("Files() of a tool that is not built = %v", err)
	}
	if _, err := set.Path("emacs"); err == nil || errors.Is(err, ErrMissing) {
		t.Errorf("Path() of an unknown program = %v, want an error that is not ErrMissing", err)
	}
	if dirs := set.BinDirs(); len(dirs) > 0 {
		t.Errorf("BinDirs() of an empty cache = %v", dirs)
	}
}

func TestPathFindsWhatIsBuilt(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	set, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range set.Tools() {
		if tool.Name != "etcd" {
			continue
		}
		bin := filepath.Join(set.Dir(tool), "bin")
		if err := os.MkdirAll(bin, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{"etcd", "etcdctl", "etcdutl"} {
			if err := os.WriteFile(filepath.Join(bin, program), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if missing := set.Missing(tool); len(missing) > 0 {
			t.Errorf("Missing() = %v", missing)
		}
		if path, err := set.Path("etcd"); err != nil || path != filepath.Join(bin, "etcd") {
			t.Errorf("Path() = %s, %v", path, err)
		}
	}
}
