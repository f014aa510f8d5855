//go:build linux && cluster

package cluster

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// content is what an image of files of this machine holds.
type content struct {
	files  map[string]string // those of this machine, by their path in the image
	links  map[string]string // symbolic links
	folder string            // in which programs start; empty for that of the root
}

func newContent() *content {
	return &content{files: map[string]string{}, links: map[string]string{}}
}

// add puts a program into the image, with the libraries that it is linked to.
func (c *content) add(t *testing.T, program, to string) {
	t.Helper()
	c.files[to] = program
	out, err := command(t.Context(), "", "ldd", program)
	if err != nil {
		return // it is linked to none, or no program
	}
	for line := range strings.Lines(out) {
		for word := range strings.FieldsSeq(line) {
			if strings.HasPrefix(word, "/") {
				c.files[word] = word
			}
		}
	}
}

// addTree puts a folder into the image.
func (c *content) addTree(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || entry.IsDir():
			return err
		case entry.Type() == fs.ModeSymlink:
			c.links[file], err = os.Readlink(file)
			return err
		}
		c.files[file] = file
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// layer writes the files as a tar file.
func (c *content) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	folders := map[string]bool{"/": true}
	var add func(folder string) error
	add = func(folder string) error {
		if folders[folder] {
			return nil
		}
		folders[folder] = true
		mode := int64(0o755)
		if folder == "/tmp" {
			mode = 0o1777
		}
		if err := add(path.Dir(folder)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder[1:] + "/", Mode: mode})
	}
	file := func(name string, mode int64, content []byte) error {
		err := errors.Join(add(path.Dir(name)), w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Mode: mode, Size: int64(len(content))}))
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	problems := []error{
		add("/tmp"),
		file("/etc/passwd", 0o644, []byte("root:x:0:0::/tmp:/bin/sh\nnonroot:x:65532:65532::/tmp:/bin/sh\nargocd:x:999:999::/home/argocd:/bin/sh\n")),
		file("/etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\nargocd:x:999:\n")),
	}
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		content, err := os.ReadFile(c.files[name])
		if err == nil {
			err = file(name, 0o755, content)
		}
		problems = append(problems, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.links)) {
		problems = append(problems, add(path.Dir(name)), w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name[1:], Linkname: c.links[name], Mode: 0o777}))
	}
	return out.Bytes(), errors.Join(append(problems, w.Close())...)
}

// image is one of a single layer, which runs entrypoint as user.
func (c *content) image(t *testing.T, user string, entrypoint ...string) v1.Image {
	t.Helper()
	layer, err := c.layer()
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer, types.DockerUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config = v1.Config{
		Entrypoint: entrypoint, User: user, WorkingDir: c.folder, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// readLayout reads the one image of an OCI layout.
func readLayout(t *testing.T, folder string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("%s has %d images", folder, len(manifest.Manifests))
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// firstOf returns the first of some files that is there.
func firstOf(t *testing.T, files ...string) string {
	t.Helper()
	at := slices.IndexFunc(files, func(file string) bool { _, err := os.Stat(file); return err == nil })
	if at < 0 {
		t.Fatalf("there is none of %v", files)
	}
	return files[at]
}
