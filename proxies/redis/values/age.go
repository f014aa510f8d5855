// Package values reads what Argo CD keeps of an Application: whether it is too much to
// unpack, and the age that a tree is to show.
package values

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/stream/jsonlimit"
)

const (
	// maxMarkedBytes is the longest tree, not compressed, that is marked with its age. A
	// longer one is shown as it is: that its agent is away shows at its cluster.
	maxMarkedBytes = 8 << 20
	// MarkingBytes is what that takes: the text as it is, with its marks, and compressed.
	MarkingBytes = 3 * maxMarkedBytes
	// markName is what the mark is called. Argo CD shows its value on the resource.
	markName = "Last known"
)

// Clock is a time as people read it. Argo CD shows marks in lower case, so it has no
// letters that would look odd then.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC on 2006-01-02") }

// MarkTree adds to each resource without a parent what Argo CD shows on it. The text is
// copied with what is added; of its values none is decoded.
func MarkTree(value []byte, compressed bool, age string) ([]byte, error) {
	text, err := Expand(value, compressed)
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

// Expand returns what a value holds.
func Expand(value []byte, compressed bool) ([]byte, error) {
	if !compressed {
		if len(value) > maxMarkedBytes {
			return nil, resp.ErrTooLong
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
		return nil, resp.ErrTooLong
	}
	return text, nil
}
