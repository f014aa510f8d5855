package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive packs files, in the order of names.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{w, packed} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func TestOpen(t *testing.T) {
	good := archive(t, map[string]string{"VERSION": "v1.2.3\n", "LICENSE": "free", "install.yaml": "kind: A"})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/plain/") {
			http.Redirect(w, r, "http://manifests.example/argo-cd.tar.gz", http.StatusFound)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/round/") {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return
		}
		if r.URL.Path != "/of/argo-cd.tar.gz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(good)
	}))
	defer server.Close()
	folder := func(content []byte) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "argo-cd.tar.gz"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, from := range []string{folder(good), server.URL + "/of", server.URL + "/of/"} {
		set, err := Open(t.Context(), ArgoCD, from)
		if err != nil || set.Version != "v1.2.3" || string(set.Files["install.yaml"]) != "kind: A" || len(set.Files) != 2 {
			t.Errorf("Open(%q) = %+v, %v", from, set, err)
		}
	}
	for name, c := range map[string]struct{ from, want string }{
		"no archive":       {t.TempDir(), "no such file"},
		"not found":        {server.URL, "404"},
		"no https":         {"http://manifests.example", "not of https"},
		"to no https":      {server.URL + "/plain", "not of https"},
		"round and round":  {server.URL + "/round", "again and again"},
		"no gzip":          {folder([]byte("kind: Application")), "invalid header"},
		"cut off":          {folder(good[:len(good)/2]), "unexpected EOF"},
		"no version":       {folder(archive(t, map[string]string{"LICENSE": "free", "install.yaml": "kind: A"})), "a VERSION"},
		"no licence":       {folder(archive(t, map[string]string{"VERSION": "v1", "install.yaml": "kind: A"})), "a LICENSE"},
		"too large":        {folder(bytes.Repeat([]byte("a"), maxPacked+1)), "larger than 8 MiB"},
		"too large inside": {folder(archive(t, map[string]string{"VERSION": strings.Repeat("a", maxUnpacked+1)})), "more than 100 files or 64 MiB"},
	} {
		if _, err := Open(t.Context(), ArgoCD, c.from); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Open() = %v, want %q", name, err, c.want)
		}
	}
	if _, err := Open(t.Context(), "nothing", ""); err == nil || !strings.Contains(err.Error(), "--manifests is missing") {
		t.Errorf("Open() of what is not there = %v", err)
	}
}
