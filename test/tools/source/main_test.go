//go:build unix

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// entry is one of an archive.
type entry struct {
	name, content, link string
}

func archiveOf(t *testing.T, level int, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(e.content))}
		if e.link != "" {
			header = &tar.Header{Name: e.name, Typeflag: tar.TypeSymlink, Linkname: e.link}
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// files are those of a project, in an archive's one folder.
var files = []entry{{name: "p-1/src/a.ts", content: "a"}, {name: "p-1/package.json", content: "{}"}}

// sum is that of files.
const sum = "sha256:e052e3657d26a9eae0199901a8104a129c47a0dfb2e1fd491a5a41f347ffc3fc"

func TestSource(t *testing.T) {
	archives := map[string][]byte{
		"/best": archiveOf(t, gzip.BestCompression, files...),
		"/fast": archiveOf(t, gzip.BestSpeed, files[1], files[0]),
		"/more": archiveOf(t, gzip.BestSpeed, append(files, entry{name: "p-1/b", content: "b"})...),
		"/text": []byte("no archive"),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := archives[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content) // a client that went away
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "archive.tar.gz")
	if err := os.WriteFile(file, archives["/best"], 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		says string // empty: it succeeds
	}{
		"from an address":                          {[]string{"-url", server.URL + "/best"}, ""},
		"the same, in other order and compression": {[]string{"-url", server.URL + "/fast"}, ""},
		"from a file, whatever the address":        {[]string{"-archive", file, "-url", server.URL + "/none"}, ""},
		"one file more":                            {[]string{"-url", server.URL + "/more"}, "holds something else"},
		"not an archive":                           {[]string{"-url", server.URL + "/text"}, "gzip"},
		"not there":                                {[]string{"-url", server.URL + "/none"}, "404"},
		"a file that is not there":                 {[]string{"-archive", file + "x"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "to")
			err := run(t.Context(), append(c.args, "-sum", sum, "-to", to))
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("run() = %v, want an error with %q", err, c.says)
				}
				if _, err := os.Stat(to); err == nil {
					t.Error("it left a folder")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if content, err := os.ReadFile(filepath.Join(to, "src", "a.ts")); err != nil || string(content) != "a" {
				t.Errorf("src/a.ts = %q, %v", content, err)
			}
		})
	}
}

// An archive writes nothing but files below the folder that it is given.
func TestLayOutStaysInside(t *testing.T) {
	for name, hostile := range map[string][]entry{
		"a path that leaves":       {{name: "p-1/x/../../../outside", content: "x"}},
		"a link that leaves":       {{name: "p-1/link", link: ".."}, {name: "p-1/link/outside", content: "x"}},
		"a file without a folder":  {{name: "outside", content: "x"}},
		"a path from the very top": {{name: "/outside", content: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := layOut(bytes.NewReader(archiveOf(t, gzip.BestSpeed, hostile...)), sum, filepath.Join(dir, "to"))
			left, readErr := os.ReadDir(dir)
			if err == nil || readErr != nil || len(left) > 0 {
				t.Errorf("layOut() = %v, leaves %v, %v", err, left, readErr)
			}
		})
	}
}

// An address that takes the connection and does not answer is given up.
func TestNoAnswer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	_, err := open(t.Context(), "", server.URL, 20*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("open() = %v", err)
	}
}
