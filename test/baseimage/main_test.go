package main

import (
	"archive/tar"
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
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The helper process reads the image that it is told of, as ko does, and holds it against
// what it should be.
func TestHelperReads(t *testing.T) {
	if os.Getenv("BASEIMAGE_TEST") == "" {
		t.Skip("run by TestImage")
	}
	address := os.Getenv(environment)
	if !strings.HasPrefix(address, "127.0.0.1:") {
		t.Fatalf("the image is %q", address)
	}
	source, err := name.NewDigest(address) // what a tag names may change
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(source, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil { // digests, sizes, media types
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, d := range manifest.Manifests {
		found = append(found, d.Platform.String())
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		testImage(t, d, image)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, found); diff != "" {
		t.Error(diff)
	}
	var refused *transport.Error
	if err := remote.Tag(source.Tag("mine"), index, remote.WithContext(t.Context())); !errors.As(err, &refused) || refused.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("who writes is told: %v", err)
	}
}

// testImage holds the image of an architecture against what it should be.
func testImage(t *testing.T, d v1.Descriptor, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != d.Platform.Architecture || config.OS != "linux" || config.Config.User != "65532:65532" {
		t.Errorf("the configuration of %s is %+v", d.Platform, config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 || d.MediaType != types.OCIManifestSchema1 {
		t.Fatalf("%s is %s and has %d layers: %v", d.Platform, d.MediaType, len(layers), err)
	}
	want := map[string]string{
		"etc/": "0755", "etc/group": "root:x:0:\nnonroot:x:65532:\n", "etc/ssl/": "0755", "etc/ssl/certs/": "0755",
		"etc/passwd":                        "root:x:0:0::/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n",
		"etc/ssl/certs/ca-certificates.crt": "the authorities", "tmp/": "1777",
	}
	if diff := cmp.Diff(want, unpack(t, layers[0])); diff != "" {
		t.Error(diff)
	}
}

// unpack returns contents of files and modes of folders, by name.
func unpack(t *testing.T, layer v1.Layer) map[string]string {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }() // only read from
	found := map[string]string{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		file, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		found[header.Name] = string(file)
		if header.Typeflag == tar.TypeDir {
			found[header.Name] = fmt.Sprintf("%04o", header.Mode)
		}
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
	digest := func(authorities string) v1.Hash {
		index, err := build([]byte(authorities))
		if err != nil {
			t.Fatal(err)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	one, again, other := digest("the authorities"), digest("the authorities"), digest("others")
	if one != again || one == other {
		t.Errorf("digests are %s, %s, %s", one, again, other)
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
