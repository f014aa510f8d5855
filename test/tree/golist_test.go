package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/argomesh/argomesh"

// root is the folder of the module, from the folder these tests run in.
var root = filepath.Join("..", "..")

// pkg is what go list tells about one package.
type pkg struct {
	ImportPath   string
	Dir          string
	Name         string
	Doc          string
	Imports      []string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// rel is the import path inside the module.
func (p pkg) rel() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// once lists the module's packages a single time for all tests.
var once struct {
	sync.Once
	packages []pkg
}

// packages returns every package of the module and of the module api, with the files of all builds we
// have tags for.
func packages(t *testing.T) []pkg {
	t.Helper()
	once.Do(func() { once.packages = goList(t, "./...", module+"/api/...") })
	if len(once.packages) == 0 {
		t.Fatal("go list found no package")
	}
	return once.packages
}

// byName returns the packages by their path inside the module.
func byName(t *testing.T) map[string]pkg {
	t.Helper()
	named := make(map[string]pkg)
	for _, p := range packages(t) {
		named[p.rel()] = p
	}
	return named
}

func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	args = append([]string{"list", "-tags", "soak,matrix", "-json=ImportPath,Dir,Name,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles"}, args...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var found []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatalf("read what go list says: %v", err)
		}
		found = append(found, p)
	}
}
