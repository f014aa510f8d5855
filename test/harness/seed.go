//go:build linux

package harness

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A seed is what an API server made of its first start and of custom resource definitions. A new
// control plane that is to have the same finds it in its etcd, which saves the API server half of
// what its start takes: it stores each definition several times until it serves it.
//
// Nothing in it has an identity that something depends on, as the UID of a namespace is that of its
// cluster: namespaces, service accounts, leases and Services are new in each.
type seed []etcdPair

// etcdPair is a key below the prefix of a control plane, and its value.
type etcdPair struct {
	Key   string
	Value []byte
}

// seeded are the folders of etcd of which a seed consists.
func seeded() []string {
	return []string{
		"/apiextensions.k8s.io/customresourcedefinitions/", "/apiregistration.k8s.io/apiservices/",
		"/clusterroles/", "/clusterrolebindings/", "/roles/", "/rolebindings/", "/priorityclasses/",
	}
}

const (
	// seedsKept is how many seeds the cache has at most; each takes some 100 KiB.
	seedsKept = 64
	// seedBatch is how many bytes of a seed are written in one transaction, unless one value
	// has more, and seedBatchKeys how many keys: etcd's default allows 128.
	seedBatch, seedBatchKeys = 128 << 10, 100
)

// topKind is the kind of an object in a YAML file.
var topKind = regexp.MustCompile(`(?m)^kind:\s*(\S+)\s*$`)

// definitionsAmong tells files that hold nothing but custom resource definitions from others.
func definitionsAmong(files []string) (definitions, others []string, err error) {
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		kinds := topKind.FindAllSubmatch(content, -1)
		other := func(match [][]byte) bool { return string(match[1]) != "CustomResourceDefinition" }
		if len(kinds) == 0 || slices.ContainsFunc(kinds, other) {
			others = append(others, file)
			continue
		}
		definitions = append(definitions, file)
	}
	return definitions, others, nil
}

// seedFile is where the seed of an API server with these definitions is, or will be.
func (c *ControlPlane) seedFile(definitions []string) (string, error) {
	server, err := c.program("kube-apiserver") // its folder has the name of all that it was built from
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, server, seeded()) // a hash never fails to write
	var sums []string
	for _, file := range definitions {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(content)))
	}
	slices.Sort(sums)
	_, _ = fmt.Fprintln(sum, slices.Compact(sums)) // a hash never fails to write
	return filepath.Join(c.h.tools.Cache(), "seeds", hex.EncodeToString(sum.Sum(nil)[:12])+".json.gz"), nil
}

// begin writes the seed of a file into the control plane's etcd, before its API server starts, and
// reports whether there was one. Without one it returns what keeps one, to be called once the API server
// has the definitions. An etcd that has data of that control plane gets no seed and makes none: what else is
// there is not known.
func (c *ControlPlane) begin(ctx context.Context, file string) (sown bool, keep func(context.Context) error, err error) {
	there, err := c.Etcd.pairs(ctx, c.etcdPrefix()+"/")
	if err != nil {
		return false, nil, err
	}
	if len(there) > 0 {
		return false, func(context.Context) error { return nil }, nil
	}
	s, err := readSeed(file)
	if err != nil { // there is none, or it is broken
		return false, func(ctx context.Context) error { return c.reap(ctx, file) }, nil //nolint:nilerr // see above
	}
	return true, nil, c.sow(ctx, s)
}

// sow writes a seed into the control plane's etcd.
func (c *ControlPlane) sow(ctx context.Context, s seed) error {
	for len(s) > 0 {
		n, size := 0, 0
		for n < len(s) && n < seedBatchKeys && (n == 0 || size+len(s[n].Value) <= seedBatch) {
			size += len(s[n].Value)
			n++
		}
		if err := c.Etcd.put(ctx, c.etcdPrefix(), s[:n]); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}

// reap keeps what the API server has by now as a seed.
func (c *ControlPlane) reap(ctx context.Context, file string) error {
	var s seed
	for _, folder := range seeded() {
		pairs, err := c.Etcd.pairs(ctx, c.etcdPrefix()+folder)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			s = append(s, etcdPair{strings.TrimPrefix(p.Key, c.etcdPrefix()), p.Value})
		}
	}
	return errors.Join(writeSeed(file, s), limitSeeds(filepath.Dir(file)))
}

func readSeed(file string) (s seed, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	if err := json.NewDecoder(z).Decode(&s); err != nil {
		return nil, err
	}
	now := time.Now()
	return s, os.Chtimes(file, now, now) // limitSeeds keeps what is used
}

// writeSeed writes all of a file or none: other processes may read and write it.
func writeSeed(file string, s seed) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "new-*")
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	if err := errors.Join(json.NewEncoder(z).Encode(s), z.Close(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), file)
}

// limitSeeds removes the seeds that were used longest ago.
func limitSeeds(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) <= seedsKept {
		return err
	}
	used := make(map[string]time.Time, len(entries))
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process was faster
		}
		if err != nil {
			return err
		}
		used[entry.Name()] = info.ModTime()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return used[b.Name()].Compare(used[a.Name()]) })
	for _, entry := range entries[seedsKept:] {
		if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// pairs are what etcd has below a prefix.
func (e *Etcd) pairs(ctx context.Context, prefix string) ([]etcdPair, error) {
	end := []byte(prefix)
	end[len(end)-1]++ // the first key that does not begin with it
	var answer struct {
		KVs []struct{ Key, Value []byte } `json:"kvs"`
	}
	if err := e.ask(ctx, "range", map[string]any{"key": []byte(prefix), "range_end": end}, &answer); err != nil {
		return nil, err
	}
	pairs := make([]etcdPair, len(answer.KVs))
	for i, kv := range answer.KVs {
		pairs[i] = etcdPair{string(kv.Key), kv.Value}
	}
	return pairs, nil
}

// put writes all pairs at once, below a prefix.
func (e *Etcd) put(ctx context.Context, prefix string, pairs []etcdPair) error {
	var puts []map[string]any
	for _, p := range pairs {
		puts = append(puts, map[string]any{"requestPut": map[string]any{"key": []byte(prefix + p.Key), "value": p.Value}})
	}
	return e.ask(ctx, "txn", map[string]any{"success": puts}, nil)
}

// ask calls etcd's JSON interface.
func (e *Etcd) ask(ctx context.Context, method string, question, answer any) (err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s", method, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
