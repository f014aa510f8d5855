package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// database serves a database of vulnerabilities with one, of a function of the standard
// library that the module in testdata calls, or with none.
func database(t *testing.T, known bool) string {
	t.Helper()
	const modified = "2026-01-01T00:00:00Z"
	files := map[string]string{
		"/index/db.json": `{"modified":"` + modified + `"}`, "/index/modules.json": `[]`, "/index/vulns.json": `[]`,
	}
	if known {
		files["/index/modules.json"] = `[{"path":"stdlib","vulns":[{"id":"GO-2026-9999","modified":"` + modified + `"}]}]`
		files["/index/vulns.json"] = `[{"id":"GO-2026-9999","modified":"` + modified + `"}]`
		files["/ID/GO-2026-9999.json"] = `{"schema_version":"1.3.1","id":"GO-2026-9999","modified":"` + modified + `","published":"` + modified + `",
			"summary":"A made up one","details":"A made up one.","affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
			"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
			"ecosystem_specific":{"imports":[{"path":"strings","symbols":["ToUpper"]}]}}],
			"database_specific":{"url":"https://vulnerabilities.example.org/GO-2026-9999"}}`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, packed := strings.CutSuffix(r.URL.Path, ".gz")
		text, found := files[path]
		if !found {
			http.NotFound(w, r)
			return
		}
		to := io.WriteCloser(nopCloser{w})
		if packed {
			to = gzip.NewWriter(w)
		}
		_, err := io.WriteString(to, text)
		if err := errors.Join(err, to.Close()); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// program is a module that calls strings.ToUpper.
func program(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/program\n\ngo 1.26\n",
		"main.go": "package main\n\nimport (\n\t\"os\"\n\t\"strings\"\n)\n\nfunc main() { println(strings.ToUpper(os.Args[0])) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestRun(t *testing.T) {
	harnesstest.SkipMissing(t, "govulncheck")
	govulncheck, err := harnesstest.Tools(t).Path("govulncheck")
	if err != nil {
		t.Fatal(err)
	}
	program(t)
	for name, c := range map[string]struct {
		known bool
		fails bool
		says  string
	}{
		"a finding fails":   {true, true, "Your code is affected by 1 vulnerability"},
		"no finding passes": {false, false, "No vulnerabilities found"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), []string{govulncheck, "./..."}, database(t, c.known), &out, &out)
			if (err != nil) != c.fails || !strings.Contains(out.String(), c.says) {
				t.Errorf("run() = %v, and says\n%s\nwant %q", err, out.String(), c.says)
			}
		})
	}
}

// Where no one answers, nothing is said to be well.
func TestRunWithoutDatabase(t *testing.T) {
	for name, gone := range map[string]bool{"an answer that is none": false, "no answer": true} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.NotFoundHandler())
			defer server.Close()
			if gone {
				server.Close()
			}
			var out bytes.Buffer
			if err := run(t.Context(), []string{"/absent/govulncheck", "./..."}, server.URL, &out, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(out.String(), "skipped: database not reachable") {
				t.Errorf("it says %q", out.String())
			}
		})
	}
}
