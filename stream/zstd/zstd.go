// Package zstd is gRPC's compressor of that name (RFC 8878). It owns how a frame
// of ours is compressed and what memory that may take; which calls use it is left
// to packages client and server. gRPC keeps compressors in a table of the
// process, into which importing this package puts it.
//
//	streampb.NewStreamClient(cc).Connect(ctx, grpc.UseCompressor(zstd.Name))
package zstd

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/encoding"

	"github.com/argomesh/argomesh/stream"
)

// Name is the content coding as gRPC peers agree on it.
const Name = "zstd"

const (
	// minBytes is the shortest message that is compressed; a shorter one is stored.
	// It fills one packet whether compressed or not, and heartbeats and most answers
	// are such.
	minBytes = 1024
	// windowBytes is how far back our encoders look. More than some dozens of
	// statuses does not make a batch shorter.
	windowBytes = 256 << 10
	// maxWindowBytes is the largest window that a peer may ask our decoders to keep, and
	// which they take at once: four times that of ours.
	maxWindowBytes = 4 * windowBytes
)

func init() { //nolint:gochecknoinits // gRPC takes compressors at no other time
	encoding.RegisterCompressor(New())
}

// Compressor implements gRPC's encoding.Compressor. Its coders are pooled; it may
// be used concurrently.
type Compressor struct {
	encoders sync.Pool // of *zstd.Encoder
	decoders sync.Pool // of *zstd.Decoder
	writers  sync.Pool // of *writer
}

// New returns a Compressor.
func New() *Compressor { return &Compressor{} }

// Name implements encoding.Compressor.
func (*Compressor) Name() string { return Name }

// Compress implements encoding.Compressor.
func (c *Compressor) Compress(w io.Writer) (io.WriteCloser, error) {
	z, ok := c.writers.Get().(*writer)
	if !ok {
		z = &writer{compressor: c, small: make([]byte, 0, minBytes)}
	}
	z.out = w
	return z, nil
}

// Decompress implements encoding.Compressor. What it returns yields as much as
// the peer made of it; gRPC stops reading at the limit of a message.
func (c *Compressor) Decompress(r io.Reader) (io.Reader, error) {
	d, ok := c.decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		d, err = zstd.NewReader(nil,
			zstd.WithDecoderConcurrency(1), // no goroutines of its own
			zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(stream.MaxFrameBytes), zstd.WithDecoderMaxWindow(maxWindowBytes),
			zstd.WithDecodeBuffersBelow(0), // never the whole at once
		)
		if err != nil {
			return nil, err
		}
	}
	if err := d.Reset(r); err != nil {
		return nil, err
	}
	return &reader{decoder: d, compressor: c}, nil
}

// writer compresses one message, unless it turns out to be short.
type writer struct {
	compressor *Compressor
	out        io.Writer
	small      []byte        // all that was written, while encoder is nil
	encoder    *zstd.Encoder // once there is more
}

// Write implements io.Writer.
func (z *writer) Write(p []byte) (int, error) {
	if z.encoder == nil {
		if len(z.small)+len(p) < minBytes {
			z.small = append(z.small, p...)
			return len(p), nil
		}
		if err := z.begin(); err != nil {
			return 0, err
		}
	}
	return z.encoder.Write(p)
}

func (z *writer) begin() error {
	e, ok := z.compressor.encoders.Get().(*zstd.Encoder)
	if !ok {
		var err error
		e, err = zstd.NewWriter(nil,
			zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(windowBytes),
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), // TLS has its own
		)
		if err != nil {
			return err
		}
	}
	e.Reset(z.out)
	z.encoder = e
	_, err := e.Write(z.small)
	return err
}

// Close implements io.Closer.
func (z *writer) Close() error {
	var err error
	if z.encoder != nil {
		err = z.encoder.Close()
		z.encoder.Reset(nil)
		z.compressor.encoders.Put(z.encoder)
	} else {
		err = store(z.out, z.small)
	}
	z.out, z.encoder, z.small = nil, nil, z.small[:0]
	z.compressor.writers.Put(z)
	return err
}

// store writes a frame whose one block is the message itself (RFC 8878, section
// 3.1.1).
func store(w io.Writer, message []byte) error {
	const (
		magic         = 0xFD2FB528
		singleSegment = 1 << 5 // no window, the size of the content follows
		twoBytes      = 1 << 6 // of that size, less 256
		lastRawBlock  = 1
	)
	header := make([]byte, 0, 10)
	header = binary.LittleEndian.AppendUint32(header, magic)
	if len(message) < 256 {
		header = append(header, singleSegment, byte(len(message)))
	} else {
		header = append(header, singleSegment|twoBytes)
		header = binary.LittleEndian.AppendUint16(header, uint16(len(message)-256)) //nolint:gosec // below minBytes
	}
	block := uint32(len(message))<<3 | lastRawBlock //nolint:gosec // as above
	header = append(header, byte(block), byte(block>>8), byte(block>>16))
	if _, err := w.Write(header); err != nil {
		return err
	}
	_, err := w.Write(message)
	return err
}

// reader is a decoder on loan, which gRPC gives back.
type reader struct {
	decoder    *zstd.Decoder
	compressor *Compressor
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) { return r.decoder.Read(p) }

// Close implements io.Closer. It is called once.
func (r *reader) Close() error {
	err := r.decoder.Reset(nil) // lets go of the message
	r.compressor.decoders.Put(r.decoder)
	r.decoder = nil
	return err
}
