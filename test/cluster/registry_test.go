//go:build linux && cluster

package cluster

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	containerregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serveImages serves a registry on loopback until the test ends, with blobs in a folder, and returns its address.
func serveImages(t *testing.T, folder string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(containerregistry.New(
		containerregistry.WithBlobHandler(containerregistry.NewDiskBlobHandler(folder)),
		containerregistry.Logger(log.New(io.Discard, "", 0)),
	))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// push puts an image into the registry, which stands for the one that the reference names.
func (w *clusterEnv) push(t *testing.T, reference string, image v1.Image) {
	t.Helper()
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	to, err := name.NewTag(fmt.Sprintf("%s/%s:%s", w.images, tag.RepositoryStr(), tag.TagStr()))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, image, remote.WithContext(t.Context())); err != nil {
		t.Fatalf("push %s: %v", reference, err)
	}
}

// registryPort is that of the registry on each node.
const registryPort = "5000"

// useRegistry has containerd ask the registry at an address of this machine in place of every other. It returns the
// folder of containerd's settings for that.
func (n *node) useRegistry(t *testing.T, address string) string {
	t.Helper()
	listen := n.ip + ":" + registryPort
	n.spaces.forward(t, listen, address)
	folder := filepath.Join(n.dir, "registries")
	hosts := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+listen)
	if err := os.MkdirAll(filepath.Join(folder, "_default"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "_default", "hosts.toml"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}
