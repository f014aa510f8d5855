package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/argomesh/argomesh/proxies/access"
)

// Argo CD reads an answer as a whole before it decodes it, and unpacks it too, so a spoke
// that answers without end, or some megabytes of gzip, would take the memory of the hub's
// argocd-server from everyone. An answer is counted as it passes, unpacked, and one that is
// longer never comes to its end.
const (
	// maxObjectAnswer bounds an answer about one object: several times what an API server
	// stores of one.
	maxObjectAnswer = 16 << 20
	// MaxListAnswer bounds every other: lists, kinds, OpenAPI.
	MaxListAnswer = 128 << 20
)

var (
	// ErrLongAnswer is an answer that is longer than that.
	ErrLongAnswer = errors.New("the spoke's answer is longer than any")
	// ErrNotPacked is one that says that it is packed and is not, or not whole.
	ErrNotPacked = errors.New("the spoke's answer cannot be unpacked")
)

// AnswerLimit is how long the answer to a call may be, in bytes; zero for one that is read
// as it comes: a watch, a log, what is behind a proxy or an upgrade.
func AnswerLimit(r access.Request, long bool) int64 {
	switch {
	case long, r.IsProxy(), r.Subresource == "log":
		return 0
	case !r.IsResource(), r.Verb == "list", r.Verb == "deletecollection":
		return MaxListAnswer
	}
	return maxObjectAnswer
}

// BoundAnswer has the body of an answer end with errLongAnswer beyond the limit, and refuses
// one that says before that it is longer. cut is told of either, once. It waits for the begin
// of the body: while nothing was passed on a caller can be told what is wrong with it.
func BoundAnswer(res *http.Response, limit int64, cut func()) error {
	if limit == 0 || res.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	if res.ContentLength > limit {
		cut()
		return fmt.Errorf("%w: %d bytes", ErrLongAnswer, res.ContentLength)
	}
	b := &boundedBody{ReadCloser: res.Body, left: limit, cut: sync.OnceFunc(cut)}
	if strings.EqualFold(strings.TrimSpace(res.Header.Get("Content-Encoding")), "gzip") {
		reader, writer := io.Pipe()
		b.unpacking, b.unpacked = writer, make(chan error, 1)
		go func() {
			err := countGzip(reader, limit)
			_ = reader.CloseWithError(err) // what is written from then on fails with it
			b.unpacked <- err
		}()
	}
	res.Body = b
	return b.begin()
}

// countGzip reads what gzip packed, and fails where it is longer than limit.
func countGzip(from io.Reader, limit int64) error {
	unpacked, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotPacked, err)
	}
	defer func() { _ = unpacked.Close() }() // it has nothing to say that a read has not
	n, err := io.Copy(io.Discard, io.LimitReader(unpacked, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotPacked, err)
	case n > limit:
		return ErrLongAnswer
	}
	return nil
}

// gzipHead is how long the shortest header of gzip is, in bytes, and gzipMagic its begin.
const (
	gzipHead  = 10
	gzipMagic = "\x1f\x8b\x08"
)

// boundedBody is the body of an answer that may have so much.
type boundedBody struct {
	io.ReadCloser
	left      int64
	cut       func()
	unpacking *io.PipeWriter // to where what is unpacked is counted; nil for what is not packed
	unpacked  chan error     // what came of that, once unpacking was closed
	begun     bool           // something came
	// first is what begin read and Read has not given yet, in a buffer of buffers, and
	// firstErr what came with it.
	first    []byte
	buffer   []byte
	firstErr error
}

// begin reads the first bytes, as many as a read brings, and of what is packed a whole header.
// An error is not about an end that comes so soon.
func (b *boundedBody) begin() error {
	b.buffer = buffers.Get()
	n, want, err := 0, 1, error(nil)
	if b.unpacking != nil {
		want = gzipHead
	}
	for n < want && err == nil {
		var more int
		more, err = b.next(b.buffer[n:])
		n += more
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if b.unpacking != nil && n > 0 && !bytes.HasPrefix(b.buffer[:n], []byte(gzipMagic)) {
		b.cut()
		return ErrNotPacked
	}
	b.first, b.firstErr = b.buffer[:n], err
	return nil
}

// Read gives what begin read, and then the rest.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.buffer == nil {
		return b.next(p)
	}
	n := copy(p, b.first)
	if b.first = b.first[n:]; len(b.first) > 0 {
		return n, nil
	}
	buffers.Put(b.buffer)
	b.buffer, b.first = nil, nil
	return n, b.firstErr
}

// next reads and counts.
func (b *boundedBody) next(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.cut()
		return 0, ErrLongAnswer
	}
	if b.unpacking == nil {
		return n, err
	}
	if n > 0 {
		b.begun = true
		if _, err := b.unpacking.Write(p[:n]); err != nil {
			b.cut()
			return 0, err
		}
	}
	if !errors.Is(err, io.EOF) || !b.begun { // the answer to a HEAD has no body
		return n, err
	}
	_ = b.unpacking.Close() // it never fails
	if err := <-b.unpacked; err != nil {
		b.unpacked <- err
		b.cut()
		return 0, err
	}
	b.unpacked <- nil
	return n, err
}

// Close ends it, and the counting.
func (b *boundedBody) Close() error {
	if b.unpacking != nil {
		_ = b.unpacking.Close() // it never fails
	}
	return b.ReadCloser.Close()
}
