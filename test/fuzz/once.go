package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// recordAge is how long a record counts: after that a target is fuzzed again, whatever its content.
const recordAge = 7 * 24 * time.Hour

// records remember which targets were fuzzed, with which content and for how long, each in a file
// of a folder.
type records struct{ folder string }

// newRecords returns those of this user.
func newRecords() (records, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return records{}, err
	}
	folder := filepath.Join(cache, "argomesh", "fuzzed")
	return records{folder}, os.MkdirAll(folder, 0o755)
}

func (r records) path(t target, content string) string {
	sum := sha256.Sum256([]byte(t.String() + " " + content))
	return filepath.Join(r.folder, hex.EncodeToString(sum[:]))
}

// has reports whether a target of this content was fuzzed for d, of late.
func (r records) has(t target, content string, d time.Duration) bool {
	info, err := os.Stat(r.path(t, content))
	if err != nil || time.Since(info.ModTime()) > recordAge {
		return false
	}
	raw, err := os.ReadFile(r.path(t, content))
	if err != nil {
		return false
	}
	did, err := time.ParseDuration(string(raw))
	return err == nil && did >= d
}

// add notes that a target was fuzzed for d.
func (r records) add(t target, content string, d time.Duration) error {
	return os.WriteFile(r.path(t, content), []byte(d.String()), 0o600)
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version string
		Main          bool
		Replace       *struct{ Path, Version string }
	}
	GoFiles, CgoFiles, HFiles, SFiles, EmbedFiles              []string
	TestGoFiles, XTestGoFiles, TestEmbedFiles, XTestEmbedFiles []string
}

func (p *listed) files() []string {
	return slices.Concat(p.GoFiles, p.CgoFiles, p.HFiles, p.SFiles, p.EmbedFiles, p.TestGoFiles, p.XTestGoFiles, p.TestEmbedFiles,
		p.XTestEmbedFiles)
}

// contentOf names what the test binary of a package is made of, and what its targets begin with: our
// own files by content, what comes from elsewhere by version.
func contentOf(ctx context.Context, t target) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-json", t.pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("list what %s is made of: %w", t.pkg, err)
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, runtime.Version()) // of a hash there is no error
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		if err := p.write(sum); err != nil {
			return "", err
		}
	}
	err = filepath.WalkDir(filepath.Join(t.dir, "testdata"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		return copyFile(sum, path)
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// write writes what a package is made of.
func (p *listed) write(w io.Writer) error {
	_, err := fmt.Fprintln(w, p.ImportPath)
	if p.Standard || err != nil {
		return err
	}
	if p.Module != nil && !p.Module.Main && (p.Module.Replace == nil || p.Module.Replace.Version != "") {
		_, err := fmt.Fprintln(w, p.Module.Path, p.Module.Version, p.Module.Replace)
		return err
	}
	for _, name := range p.files() {
		if !filepath.IsAbs(name) { // those of the generated main are elsewhere
			name = filepath.Join(p.Dir, name)
		}
		if err := copyFile(w, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func copyFile(w io.Writer, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s %d\n%s", filepath.Base(path), len(content), content)
	return err
}
