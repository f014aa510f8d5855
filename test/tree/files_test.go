package tree

import (
	"bytes"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// nameless are package names that say nothing, and so collect everything.
var nameless = []string{"util", "utils", "common", "types", "helper", "helpers", "manager", "managers", "misc", "shared", "base", "lib"}

func TestPackageNames(t *testing.T) {
	for _, p := range packages(t) {
		for segment := range strings.SplitSeq(p.rel(), "/") {
			if slices.Contains(nameless, segment) {
				t.Errorf("%s: %q says nothing about what the package owns (docs/contributing/conventions.md, shape of the tree)", p.rel(), segment)
			}
		}
		if p.Name != "main" && p.Name != path.Base(p.ImportPath) {
			t.Errorf("%s is called package %s: folder and name are one word", p.rel(), p.Name)
		}
	}
}

// minComment is a comment that says what a package owns: longer than its name and a
// verb, in bytes.
const minComment = 40

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		doc := p.Doc
		if len(p.GoFiles) == 0 { // tests only: go list reads no comment there
			doc = testDoc(t, p)
		}
		start := "Package " + p.Name + " "
		if p.Name == "main" {
			start = "Command " + path.Base(p.ImportPath) + " "
		}
		if !strings.HasPrefix(doc, start) || len(doc) < minComment {
			t.Errorf("%s: the package comment must begin with %q and say what the package owns; it is %q", p.rel(), start, doc)
		}
	}
}

// testDoc is the package comment in the test files of a package without others.
func testDoc(t *testing.T, p pkg) string {
	t.Helper()
	for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if file.Doc != nil {
			return file.Doc.Text()
		}
	}
	return ""
}

func TestGoFilesAreFormatted(t *testing.T) {
	for _, name := range files(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		source := read(t, name)
		formatted, err := format.Source(source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(source, formatted) {
			t.Errorf("%s is not formatted: gofmt -w %s", name, name)
		}
	}
}

// private are words of one machine or network. They are written in two parts, so
// that this file does not contain them.
var private = []struct {
	words *regexp.Regexp
	why   string
}{
	{
		regexp.MustCompile(`proxy\.` + `golang\.org|sum\.` + `golang\.org|pypi\.` + `org|pythonhosted\.` + `org|deb\.` + `debian\.org|archive\.` + `ubuntu\.com|registry\.` + `npmjs`),
		"names a package registry: go, pip and the distribution's packager know where to look, and people use mirrors",
	},
	{
		regexp.MustCompile(`(^|[\s"'=(:,` + "`" + `])/` + `(root|home/[a-z]+|Users/[A-Za-z]+|work)/`),
		"is a path of one machine",
	},
}

func TestNothingPrivateIsTracked(t *testing.T) {
	for _, name := range files(t) {
		if path.Base(name) == "go.sum" {
			continue
		}
		for i, line := range bytes.Split(read(t, name), []byte("\n")) {
			for _, rule := range private {
				if found := rule.words.Find(line); found != nil {
					t.Errorf("%s:%d: %q %s", name, i+1, bytes.TrimSpace(found), rule.why)
				}
			}
		}
	}
}

// maxFile is the largest file we track, in bytes. Binaries and archives do not
// belong here; what is larger is fetched or built.
const maxFile = 2 << 20

func TestNoBinariesAreTracked(t *testing.T) {
	for _, name := range files(t) {
		content := read(t, name)
		if len(content) > maxFile {
			t.Errorf("%s has %d bytes: more than %d is built or fetched, not tracked", name, len(content), maxFile)
		}
		if bytes.HasPrefix(content, []byte("\x7fELF")) {
			t.Errorf("%s is a program: build it into bin", name)
		}
		picture := slices.Contains([]string{".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico"}, path.Ext(name))
		if picture && (path.Ext(name) != ".png" || !strings.HasPrefix(name, "docs/") || len(content) > maxPicture) {
			t.Errorf("%s: pictures are PNG files of docs with at most %d bytes (make e2e-ui PICTURES=docs/pictures)", name, maxPicture)
		}
	}
}

// maxPicture is the largest picture of the documentation, in bytes.
const maxPicture = 200 << 10

// files returns the files that are tracked or about to be, with slashes, from the
// module's root.
func files(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v: these rules need a git checkout", err)
	}
	names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Lstat(filepath.Join(root, filepath.FromSlash(name)))
		return err != nil || !info.Mode().IsRegular() // deleted and not yet committed, or a link
	})
	if len(names) == 0 {
		t.Fatal("git knows no file")
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
