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

	"github.com/argomesh/argomesh/stream/jsonlimit"
	"github.com/argomesh/argomesh/stream/quota"
)

const (
	// maxMarkedBytes is the longest tree, not compressed, that is marked with its age. A
	// longer one is shown as it is: that its agent is away shows at its cluster.
	maxMarkedBytes = 8 << 20
	// markingBytes is what that takes: the text as it is, with its marks, and compressed.
	markingBytes = 3 * maxMarkedBytes
	// markName is what the mark is called. Argo CD shows its value on the resource.
	markName = "Last known"
)

// errUnmarked is that a value is no tree that can be marked.
var errUnmarked = errors.New("not a tree to be marked")

// compressedFormat ends the formats in which values are compressed.
const compressedFormat = ".gz"

// clock is a time as people read it. Argo CD shows marks in lower case, so it has no
// letters that would look odd then.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC on 2006-01-02") }

// marked returns a value with the age that it has: a tree says so at each of its roots.
// What is no tree is returned as it is.
func (h *Hub) marked(ctx context.Context, of owned, value []byte, age string) []byte {
	if of.key.Family != resourcesTree {
		return value
	}
	release, err := h.cfg.Quota.Take(ctx, of.target.Agent, quota.Working, markingBytes)
	if err != nil {
		return value // nobody waits for it
	}
	defer release()
	defer h.cfg.Quota.Compute(of.target.Agent).End()
	marked, err := markTree(value, strings.HasSuffix(of.key.Format, compressedFormat), age)
	if err != nil {
		h.cfg.Log.Debug().Err(err).Msg("a last value is shown without its age")
		return value
	}
	return marked
}

// markTree adds to each resource without a parent what Argo CD shows on it. The text is
// copied with what is added; of its values none is decoded.
func markTree(value []byte, compressed bool, age string) ([]byte, error) {
	text, err := expand(value, compressed)
	if err != nil {
		return nil, err
	}
	if _, err := jsonlimit.Check(text, valueLimits); err != nil {
		return nil, errors.Join(errUnmarked, err)
	}
	if !json.Valid(text) {
		return nil, errUnmarked
	}
	mark, err := json.Marshal(item{markName, age})
	if err != nil {
		return nil, err
	}
	if text, err = withMark(text, mark); err != nil || !compressed {
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

// item is a line of what Argo CD shows on a resource.
type item struct {
	Name  string `json:"name"`
	Value string `json:"value"`
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
