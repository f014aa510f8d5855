// Package manifests has what other projects publish to be applied. `make manifests` takes it out of
// their pinned modules, one archive for each, with the licence; it is in the binary where it was there when
// agentctl was built, and else comes from a folder or an address.
package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The projects, by the names of their archives.
const (
	ArgoCD                 = "argo-cd"
	SPIREControllerManager = "spire-controller-manager"
)

// Files that each archive has beside its manifests.
const (
	versionFile = "VERSION"
	licenceFile = "LICENSE"
)

// Limits of an archive.
const (
	maxPacked   = 8 << 20
	maxUnpacked = 64 << 20
	maxFiles    = 100
	maxTime     = time.Minute
	// maxRedirects is how many addresses a URL may lead on to.
	maxRedirects = 5
)

//go:embed all:archives
var built embed.FS

// Set is what is in the archive of one project.
type Set struct {
	// Version is the release of the project, such as v3.5.3.
	Version string
	// Files are its manifests and its licence, by path.
	Files map[string][]byte
}

// Open returns the set of a project: that of the binary when from is empty, else that of the archives in the
// folder or below the URL that from names. A URL is one of https, or of this machine.
func Open(ctx context.Context, project, from string) (Set, error) {
	archive := project + ".tar.gz"
	var raw []byte
	var err error
	switch {
	case from == "":
		if raw, err = built.ReadFile("archives/" + archive); errors.Is(err, fs.ErrNotExist) {
			return Set{}, fmt.Errorf("--manifests is missing: this agentctl was built without the manifests of %s; name a"+
				" folder or an https URL that has %s (\"make manifests\" writes it), or take an agentctl that \"make build\" made",
				project, archive)
		}
	case strings.Contains(from, "://"):
		raw, err = fetch(ctx, strings.TrimSuffix(from, "/")+"/"+archive)
	default:
		raw, err = readFile(filepath.Join(from, archive))
	}
	if err != nil {
		return Set{}, fmt.Errorf("--manifests: %w", err)
	}
	set, err := unpack(raw)
	if err != nil {
		return Set{}, fmt.Errorf("--manifests: %s: %w", archive, err)
	}
	return set, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // a person names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read
	return limited(f)
}

// limited reads all of an archive, unless it is too large for one.
func limited(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxPacked+1))
	if err == nil && len(raw) > maxPacked {
		err = fmt.Errorf("it is larger than %d MiB", maxPacked>>20)
	}
	return raw, err
}

func fetch(ctx context.Context, from string) ([]byte, error) {
	at, err := url.Parse(from)
	if err != nil {
		return nil, err
	}
	if err := safe(at); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := http.Client{CheckRedirect: func(next *http.Request, before []*http.Request) error {
		if len(before) >= maxRedirects {
			return errors.New("it redirects again and again")
		}
		return safe(next.URL)
	}}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", at.Redacted(), res.Status)
	}
	return limited(res.Body)
}

// safe refuses an address from which others could have us apply something else.
func safe(at *url.URL) error {
	if ip := net.ParseIP(at.Hostname()); at.Scheme == "https" || at.Scheme == "http" && ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s is not of https: who is on the way could change what is applied", at.Redacted())
}

// unpack reads an archive.
func unpack(raw []byte) (Set, error) {
	packed, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return Set{}, err
	}
	files := map[string][]byte{}
	archive, left := tar.NewReader(packed), int64(maxUnpacked)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Set{}, err
		}
		if left -= header.Size; left < 0 || len(files) >= maxFiles {
			return Set{}, fmt.Errorf("it has more than %d files or %d MiB", maxFiles, maxUnpacked>>20)
		}
		if files[header.Name], err = io.ReadAll(io.LimitReader(archive, header.Size)); err != nil {
			return Set{}, err
		}
	}
	set := Set{Version: strings.TrimSpace(string(files[versionFile])), Files: files}
	delete(files, versionFile)
	if set.Version == "" || files[licenceFile] == nil || len(files) < 2 {
		return Set{}, fmt.Errorf("it has not what \"make manifests\" writes: a %s, a %s and manifests", versionFile,
			licenceFile)
	}
	return set, nil
}
