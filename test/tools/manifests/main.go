// Command manifests writes the archives of package manifests: what agentctl brings by --with and others
// publish, out of their modules, which go.sum or the sum here pins. Two runs write the same bytes.
//
//	go run ./test/tools/manifests FOLDER
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

// project is one whose manifests are taken.
type project struct {
	name, module string
	// version and sum pin a module that our go.mod does not have; empty for one that it has.
	version, sum string
	// files are patterns of files in the module, by the folder of the archive where they are.
	files map[string][]string
}

func projects() []project {
	return []project{
		{
			name: "argo-cd", module: "github.com/argoproj/argo-cd/v3",
			files: map[string][]string{
				"":             {"LICENSE", "manifests/install.yaml"},
				"applications": {"examples/k8s-rbac/argocd-server-applications/argocd-*.yaml"},
			},
		},
		{
			name: "spire-controller-manager", module: "github.com/spiffe/spire-controller-manager",
			version: "v0.6.3", sum: "h1:TwGDxddP21exUKGvUOuCIr7bKrWnX7uoDoIIUllrGzU=",
			files: map[string][]string{
				"":     {"LICENSE"},
				"crds": {"config/crd/bases/spire.spiffe.io_cluster*.yaml"},
			},
		},
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./test/tools/manifests FOLDER")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, p := range projects() {
		if err := p.write(ctx, os.Args[1]); err != nil {
			fmt.Fprintf(os.Stderr, "manifests: %s: %v\n", p.name, err)
			stop()
			os.Exit(1) //nolint:gocritic // stop was called
		}
	}
}

// module is what `go mod download -json` says.
type module struct {
	Version, Dir, Sum, Error string
}

// fetch has the module be in the cache of modules.
func (p project) fetch(ctx context.Context) (m module, err error) {
	at := p.module
	if p.version != "" {
		at += "@" + p.version
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", at)
	if p.version != "" {
		cmd.Dir = os.TempDir() // go.mod of ours does not have it, and is not to get it
	}
	cmd.Stderr = os.Stderr
	out, runErr := cmd.Output()
	if err := json.Unmarshal(out, &m); err != nil {
		return m, errors.Join(runErr, err)
	}
	switch {
	case m.Error != "":
		return m, errors.New(m.Error)
	case runErr != nil:
		return m, runErr
	case p.sum != "" && m.Sum != p.sum:
		return m, fmt.Errorf("the module has the sum %s, not %s", m.Sum, p.sum)
	}
	return m, nil
}

// write writes the archive of a project into a folder.
func (p project) write(ctx context.Context, folder string) error {
	m, err := p.fetch(ctx)
	if err != nil {
		return err
	}
	files := map[string][]byte{"VERSION": []byte(m.Version + "\n")}
	for place, patterns := range p.files {
		for _, pattern := range patterns {
			paths, err := filepath.Glob(filepath.Join(m.Dir, filepath.FromSlash(pattern)))
			if err != nil {
				return err
			}
			if len(paths) == 0 {
				return fmt.Errorf("the module has no %s", pattern)
			}
			for _, path := range paths {
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				files[filepath.ToSlash(filepath.Join(place, filepath.Base(path)))] = content
			}
		}
	}
	packed, err := pack(files)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, p.name+".tar.gz")
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, packed) {
		return nil
	}
	return os.WriteFile(path, packed, 0o600)
}

// pack returns an archive without times and owners.
func pack(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), packed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
