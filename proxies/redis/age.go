package redis

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"
)

const (
	// maxMarkedBytes is the longest tree, not compressed, that is marked with its age. A
	// longer one is shown as it is: that its agent is away shows at its cluster.
	maxMarkedBytes = 16 << 20
	// maxMarking bounds the trees that are marked at a time; more wait.
	maxMarking = 4
	// markName is what the mark is called. Argo CD shows its value on the resource.
	markName = "Last known"
)

// errUnmarked is that a value is no tree that can be marked.
var errUnmarked = errors.New("not a tree to be marked")

// compressedFormat ends the formats in which values are compressed.
const compressedFormat = ".gz"

// marked returns a value with when it was true on the spoke: a tree says so at each of
// its roots. What is no tree is returned as it is.
func (h *Hub) marked(ctx context.Context, key Key, value []byte, at time.Time) []byte {
	if key.Family != resourcesTree {
		return value
	}
	select {
	case h.marking <- struct{}{}:
		defer func() { <-h.marking }()
	case <-ctx.Done():
		return value
	}
	marked, err := markTree(value, strings.HasSuffix(key.Format, compressedFormat), at)
	if err != nil {
		h.cfg.Log.Debug().Err(err).Msg("a last value is shown without its age")
		return value
	}
	return marked
}

// markTree adds to each resource without a parent what Argo CD shows on it.
func markTree(value []byte, compressed bool, at time.Time) ([]byte, error) {
	text, err := expand(value, compressed)
	if err != nil {
		return nil, err
	}
	var tree map[string]json.RawMessage
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, errors.Join(errUnmarked, err)
	}
	var nodes []map[string]json.RawMessage
	if err := json.Unmarshal(tree["nodes"], &nodes); err != nil {
		return nil, errors.Join(errUnmarked, err)
	}
	type item struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	mark, err := json.Marshal(item{markName, "as of " + at.UTC().Format(time.RFC3339)})
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if node == nil || len(node["parentRefs"]) > 0 {
			continue
		}
		var info []json.RawMessage
		if len(node["info"]) > 0 {
			if err := json.Unmarshal(node["info"], &info); err != nil {
				return nil, errors.Join(errUnmarked, err)
			}
		}
		// First, since of many items few are shown.
		if node["info"], err = json.Marshal(append([]json.RawMessage{mark}, info...)); err != nil {
			return nil, err
		}
	}
	if tree["nodes"], err = json.Marshal(nodes); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(tree); err != nil || !compressed {
		return text, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// expand returns what a value holds.
func expand(value []byte, compressed bool) ([]byte, error) {
	if !compressed {
		if len(value) > maxMarkedBytes {
			return nil, errTooLong
		}
		return value, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, errors.Join(errUnmarked, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxMarkedBytes+1))
	switch {
	case err != nil:
		return nil, errors.Join(errUnmarked, err)
	case len(text) > maxMarkedBytes:
		return nil, errTooLong
	}
	return text, nil
}
