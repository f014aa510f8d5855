package replies

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// recording packs a reply as it passes. One that takes too long, as when its caller
// does not read, is given up, and the reply passes on without.
type recording struct {
	replies *Replies
	gzip    bool
	timer   *time.Timer // gives it up

	mu     sync.Mutex // guards what follows; reply and packed are the unpacking goroutine's until done
	reply  reply
	packed bytes.Buffer
	in     io.WriteCloser // what the body is written to
	done   chan error     // of the goroutine that unpacks gzip; nil when there is none
	ended  bool
	failed bool
}

// errTooLong ends a recording.
var errTooLong = errors.New("the reply is too long to be kept")

// begin prepares in. Of a body in gzip, which is what API servers send when it is
// long, the content is kept, since the next caller may not read gzip.
func (c *recording) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(recordTime, func() { c.end(false) })
	packer, err := zstd.NewWriter(&c.packed, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(windowBytes), zstd.WithLowerEncoderMem(true))
	if err != nil {
		c.failed = true // the options are constant
		return
	}
	count := &countedWriter{recording: c, packer: packer}
	if !c.gzip {
		c.in = count
		return
	}
	reader, writer := io.Pipe()
	c.in, c.done = writer, make(chan error, 1)
	go func() {
		err := unpack(count, reader)
		_ = reader.CloseWithError(err) // a write that comes now fails with err
		c.done <- err
	}()
}

// unpack writes what gzip packed.
func unpack(to io.WriteCloser, from io.Reader) error {
	unpacked, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, unpacked); err != nil {
		return err
	}
	return to.Close()
}

// countedWriter packs what is written, within the bounds of a reply.
type countedWriter struct {
	recording *recording
	packer    *zstd.Encoder
}

func (w *countedWriter) Write(p []byte) (int, error) {
	c := w.recording
	c.reply.length += len(p)
	if c.reply.length > maxReply || c.packed.Len() > maxPacked {
		return 0, errTooLong
	}
	return w.packer.Write(p)
}

func (w *countedWriter) Close() error { return w.packer.Close() }

// write takes down the next bytes of the body.
func (c *recording) write(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed || c.ended || len(p) == 0 {
		return
	}
	if _, err := c.in.Write(p); err != nil {
		c.failed = true
	}
}

// end stores the reply when its body came whole, and makes room for another
// recording.
func (c *recording) end(whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.timer.Stop()
	defer c.replies.recorded(c.reply.key.Agent)
	defer func() { c.in, c.packed = nil, bytes.Buffer{} }() // the body may go on for long
	if c.in == nil {
		return
	}
	if !whole {
		c.failed = true
	}
	if c.done == nil {
		if !c.failed {
			c.failed = c.in.Close() != nil
		}
	} else {
		if pipe, ok := c.in.(*io.PipeWriter); ok && c.failed {
			_ = pipe.CloseWithError(errTooLong) // never fails
		} else if err := c.in.Close(); err != nil {
			c.failed = true
		}
		if err := <-c.done; err != nil {
			c.failed = true
		}
	}
	if c.failed || c.packed.Len() > maxPacked {
		c.replies.metrics.results.WithLabelValues(replyNotStored).Inc()
		return
	}
	c.reply.packed = bytes.Clone(c.packed.Bytes())
	kept := c.reply
	c.replies.store(&kept)
	c.replies.metrics.results.WithLabelValues(replyStored).Inc()
	c.replies.changed(change{key: kept.key})
}

// recordedBody is the body of an answer that is taken down.
type recordedBody struct {
	io.ReadCloser
	recording *recording
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.recording.write(p[:n])
	if err != nil {
		b.recording.end(errors.Is(err, io.EOF))
	}
	return n, err
}

func (b *recordedBody) Close() error {
	b.recording.end(false)
	return b.ReadCloser.Close()
}
