package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The helper process reads the image that it is told of, as ko does, and holds it against
// what it should be.
func TestHelperReads(t *testing.T) {
	address := os.Getenv(environment)
	if os.Getenv("BASEIMAGE_TEST") == "" {
		t.Skip("run by TestImage")
	}
	name, tag, ok := strings.Cut(strings.TrimPrefix(address, "127.0.0.1:"), "/base:")
	if !ok {
		t.Fatalf("the image is %q", address)
	}
	url := "http://127.0.0.1:" + name + "/v2/base/"
	get(t, "http://127.0.0.1:"+name+"/v2/", "")
	var index struct{ Manifests []descriptor }
	decode(t, get(t, url+"manifests/"+tag, indexType), &index)
	var found []string
	for _, d := range index.Manifests {
		found = append(found, d.Platform.OS+"/"+d.Platform.Architecture)
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		decode(t, part(t, url+"manifests/", d), &manifest)
		var config struct {
			Architecture, OS string
			Config           struct{ User string }
			RootFS           struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		decode(t, part(t, url+"blobs/", manifest.Config), &config)
		if config.Architecture != d.Platform.Architecture || config.OS != "linux" || config.Config.User != "65532:65532" {
			t.Errorf("the configuration of %s is %+v", d.Platform.Architecture, config)
		}
		if len(manifest.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
			t.Errorf("layers are %v, and %v in the configuration", manifest.Layers, config.RootFS.DiffIDs)
		}
		want := map[string]string{
			"etc/": "0755", "etc/group": "root:x:0:\nnonroot:x:65532:\n", "etc/ssl/": "0755", "etc/ssl/certs/": "0755",
			"etc/passwd":                        "root:x:0:0::/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n",
			"etc/ssl/certs/ca-certificates.crt": "the authorities", "tmp/": "1777",
		}
		if diff := cmp.Diff(want, unpack(t, part(t, url+"blobs/", manifest.Layers[0]))); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, found); diff != "" {
		t.Error(diff)
	}
	if res := ask(t, url+"blobs/sha256:0000"); res.StatusCode != http.StatusNotFound { //nolint:bodyclose // ask does, when the test ends
		t.Errorf("what is not there: %s", res.Status)
	}
}

func TestImage(t *testing.T) {
	t.Setenv("BASEIMAGE_TEST", "1")
	dir := t.TempDir()
	authorities := filepath.Join(dir, "certificates")
	if err := os.WriteFile(authorities, []byte("the authorities"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{os.Args[0], "-test.run=^TestHelperReads$", "-test.v"}, []string{filepath.Join(dir, "missing"), authorities}); err != nil {
		t.Fatal(err)
	}
}

func TestImageIsTheSameAgain(t *testing.T) {
	one, err := build([]byte("the authorities"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := build([]byte("the authorities"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := build([]byte("others"))
	if err != nil {
		t.Fatal(err)
	}
	if one.index != again.index || one.index == other.index {
		t.Errorf("digests are %s, %s, %s", one.index, again.index, other.index)
	}
}

func TestRunFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "certificates")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var failed *exec.ExitError
	if err := run(t.Context(), []string{"sh", "-c", "exit 3"}, []string{file}); !errors.As(err, &failed) || failed.ExitCode() != 3 {
		t.Errorf("a command that fails: %v", err)
	}
	if err := run(t.Context(), nil, []string{file}); err == nil {
		t.Error("no command is taken")
	}
	if err := run(t.Context(), []string{"true"}, []string{file + "-missing"}); err == nil {
		t.Error("an image without certificates is made")
	}
}

func ask(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func get(t *testing.T, url, mediaType string) []byte {
	t.Helper()
	res := ask(t, url) //nolint:bodyclose // ask does, when the test ends
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != mediaType {
		t.Fatalf("%s: %s, of type %s", url, res.Status, res.Header.Get("Content-Type"))
	}
	return content
}

// part gets what a descriptor names, and holds it against that.
func part(t *testing.T, url string, d descriptor) []byte {
	t.Helper()
	content := get(t, url+d.Digest, d.MediaType)
	sum := sha256.Sum256(content)
	if len(content) != d.Size || d.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("%v has %d bytes and digest %x", d, len(content), sum)
	}
	return content
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// unpack returns contents of files and modes of folders, by name.
func unpack(t *testing.T, layer []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		content, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		found[header.Name] = string(content)
		if header.Typeflag == tar.TypeDir {
			found[header.Name] = fmt.Sprintf("%04o", header.Mode)
		}
	}
}
