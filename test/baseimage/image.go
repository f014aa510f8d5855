package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// repository is the image's name where it is served.
const repository = "base"

// user is who programs of the image run as, unless they are told otherwise.
const user = "65532:65532"

// architectures are those that the image is for. They differ in nothing but their name.
var architectures = []string{"amd64", "arm64"}

// Media types of an OCI image.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// blob is a part of an image.
type blob struct {
	mediaType string
	content   []byte
}

// descriptor names a part in another.
type descriptor struct {
	MediaType string    `json:"mediaType"`
	Digest    string    `json:"digest"`
	Size      int       `json:"size"`
	Platform  *platform `json:"platform,omitempty"`
}

type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

// baseImage is an image for several architectures. It does not change once it is built.
type baseImage struct {
	index string          // digest
	blobs map[string]blob // by digest
}

// build makes the image of the certificates, which are in PEM.
func build(authorities []byte) (*baseImage, error) {
	layer, err := makeLayer(authorities)
	if err != nil {
		return nil, err
	}
	b := &baseImage{blobs: map[string]blob{}}
	content := b.add(layerType, layer)
	var manifests []descriptor
	for _, architecture := range architectures {
		config, err := b.addJSON(configType, map[string]any{
			"architecture": architecture, "os": "linux",
			"config": map[string]any{"User": user, "WorkingDir": "/", "Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SSL_CERT_FILE=" + certificatesFile}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{content.Digest}},
		})
		if err != nil {
			return nil, err
		}
		manifest, err := b.addJSON(manifestType, map[string]any{
			"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{content},
		})
		if err != nil {
			return nil, err
		}
		manifest.Platform = &platform{OS: "linux", Architecture: architecture}
		manifests = append(manifests, manifest)
	}
	index, err := b.addJSON(indexType, map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests})
	b.index = index.Digest
	return b, err
}

func (b *baseImage) add(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	b.blobs[digest] = blob{mediaType, content}
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(content)}
}

func (b *baseImage) addJSON(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return b.add(mediaType, content), nil
}

// certificatesFile is where programs look for authorities first.
const certificatesFile = "/etc/ssl/certs/ca-certificates.crt"

// makeLayer writes the image's files. Nothing in it tells the time or the machine.
func makeLayer(authorities []byte) ([]byte, error) {
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

// handler serves the image as a registry does to who only reads.
func (b *baseImage) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {}) // yes, it is one
	mux.HandleFunc("GET /v2/"+repository+"/manifests/{reference}", func(w http.ResponseWriter, r *http.Request) {
		reference := r.PathValue("reference")
		if reference == "latest" {
			reference = b.index
		}
		b.serve(w, r, reference)
	})
	mux.HandleFunc("GET /v2/"+repository+"/blobs/{digest}", func(w http.ResponseWriter, r *http.Request) {
		b.serve(w, r, r.PathValue("digest"))
	})
	return mux
}

func (b *baseImage) serve(w http.ResponseWriter, r *http.Request, digest string) {
	part, ok := b.blobs[digest]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", part.mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(part.content)))
	w.Header().Set("Docker-Content-Digest", digest)
	if r.Method != http.MethodHead {
		_, _ = w.Write(part.content) // who asks sees what is missing
	}
}
