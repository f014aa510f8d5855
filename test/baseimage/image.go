package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who programs of the image run as, unless they are told otherwise.
const user = "65532:65532"

// architectures are those that the image is for. They differ in nothing but their name.
var architectures = []string{"amd64", "arm64"}

// build makes the image of the certificates, which are in PEM.
func build(authorities []byte) (v1.ImageIndex, error) {
	files, err := writeFiles(authorities)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
			Architecture: architecture, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
			Config: v1.Config{User: user, WorkingDir: "/", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SSL_CERT_FILE=" + certificatesFile}},
		})
		if err != nil {
			return nil, err
		}
		image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index, nil
}

// certificatesFile is where programs look for authorities first.
const certificatesFile = "/etc/ssl/certs/ca-certificates.crt"

// writeFiles returns the image's files as a tar file. Nothing in it tells the time or the
// machine.
func writeFiles(authorities []byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var problems []error
	folder := func(name string, mode int64) {
		problems = append(problems, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}))
	}
	file := func(name string, content []byte) {
		problems = append(problems, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}))
		_, err := w.Write(content)
		problems = append(problems, err)
	}
	folder("etc", 0o755)
	file("etc/group", []byte("root:x:0:\nnonroot:x:65532:\n"))
	file("etc/passwd", []byte("root:x:0:0::/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n"))
	folder("etc/ssl", 0o755)
	folder("etc/ssl/certs", 0o755)
	file(certificatesFile[1:], authorities)
	folder("tmp", 0o1777)
	return out.Bytes(), errors.Join(append(problems, w.Close())...)
}
