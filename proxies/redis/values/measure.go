package values

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/stream/jsonlimit"
)

// What a value of a spoke may unpack to before it reaches anyone who decodes it: a tree of
// 20,000 resources, which Argo CD itself divides into parts long before.
const (
	maxUnpacked = 64 << 20
	// maxRatio is how many times its length a compressed value may have: ten times that
	// of a tree of many alike. It counts from ratioFrom bytes on.
	maxRatio  = 200
	ratioFrom = 1 << 20
)

var valueLimits = jsonlimit.Limits{Depth: 64, Values: 1 << 20, Elements: 20000}

// ExcessError is that a value is more than passes. Its text names the limit, for callers and
// the log.
type ExcessError struct{ Limit, Text string }

func (e ExcessError) Error() string { return e.Text }

// measured reads a value to its end and returns an excess for what is too much once it
// is unpacked. It keeps nothing of it. What cannot be unpacked is no more than it is: its
// reader comes no further either.
func measured(value io.Reader, compressed bool) error {
	packed := &counted{Reader: value}
	text := io.Reader(packed)
	if compressed {
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			return drain(value)
		}
		text = unpacked
	}
	scanner := jsonlimit.NewScanner(valueLimits)
	buffer := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := text.Read(buffer)
		total += n
		switch {
		case total > maxUnpacked:
			return ExcessError{"bytes", fmt.Sprintf("it has more than %d MiB once it is unpacked", maxUnpacked>>20)}
		case compressed && total > ratioFrom && total > maxRatio*packed.n:
			return ExcessError{"ratio", fmt.Sprintf("it unpacks to more than %d times its length", maxRatio)}
		}
		_, excess := scanner.Write(buffer[:n])
		if errors.Is(err, io.EOF) {
			excess = scanner.End()
		}
		var beyond jsonlimit.Error
		switch {
		case errors.As(excess, &beyond):
			return ExcessError{beyond.Limit, excess.Error()}
		case err != nil:
			return drain(value)
		}
	}
}

// drain reads what is left of a value, for anyone who writes it.
func drain(value io.Reader) error {
	_, err := io.Copy(io.Discard, value)
	return err
}

// counted counts what is read.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// MeasuredWhole is measured of a value that is there.
func MeasuredWhole(key appkey.Key, value []byte) error {
	return measured(bytes.NewReader(value), strings.HasSuffix(key.Format, appkey.CompressedFormat))
}

// CopyMeasured copies the bytes of a string, and its end, unless it turns out to be too
// much: then its end does not come, and with it nothing that its reader would decode.
func CopyMeasured(w resp.Wire, to *bufio.Writer, n int, key appkey.Key) error {
	value, pieces := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := measured(value, strings.HasSuffix(key.Format, appkey.CompressedFormat))
		_ = value.CloseWithError(err) // interrupts anyone who writes
		result <- err
	}()
	finish := func(err error) error {
		_ = pieces.CloseWithError(err) // nil: its end
		return errors.Join(err, <-result)
	}
	for n > 0 {
		if _, err := w.Peek(1); err != nil {
			return finish(resp.Unexpected(err))
		}
		piece, _ := w.Peek(min(n, w.Buffered())) // it is there
		if _, err := pieces.Write(piece); err != nil {
			return finish(err)
		}
		if _, err := to.Write(piece); err != nil {
			return finish(err)
		}
		n -= len(piece)
		if _, err := w.Discard(len(piece)); err != nil {
			return finish(err)
		}
	}
	if err := finish(nil); err != nil {
		return err
	}
	if err := w.End(); err != nil {
		return err
	}
	return resp.WriteLine(to, nil)
}
