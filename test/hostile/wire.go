//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream/streampb"
)

// raw is a codec that leaves messages as they are: bytes out, bytes in.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("what is sent is no bytes")
	}
	return b, nil
}

func (raw) Unmarshal(b []byte, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return errors.New("what is received goes into no bytes")
	}
	*into = slices.Clone(b)
	return nil
}

// coding is the content coding of the wire.
const coding = "zstd"

// packed is gRPC's compressor of that name for messages that are compressed already, so
// that a bomb costs who sends it nothing.
type packed struct{}

func init() { //nolint:gochecknoinits // gRPC takes compressors at no other time
	encoding.RegisterCompressor(packed{})
}

func (packed) Name() string { return coding }

func (packed) Compress(w io.Writer) (io.WriteCloser, error) { return asItIs{w}, nil }

func (packed) Decompress(r io.Reader) (io.Reader, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

type asItIs struct{ io.Writer }

func (asItIs) Close() error { return nil }

// packer compresses messages. It may be used concurrently.
type packer struct{ encoder *zstd.Encoder }

func newPacker() (packer, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(256<<10))
	return packer{e}, err
}

func (p packer) pack(b []byte) []byte { return p.encoder.EncodeAll(b, nil) }

// The methods of the wire.
var (
	connectMethod = streampb.Stream_Connect_FullMethodName
	serveMethod   = streampb.Tunnel_Serve_FullMethodName
	bothWays      = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
)

// call opens a stream that carries bytes. Those of a packed one are compressed.
func call(ctx context.Context, cc *grpc.ClientConn, method string, compressed bool) (grpc.ClientStream, error) {
	opts := []grpc.CallOption{grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64 << 20), grpc.MaxCallSendMsgSize(256 << 20)}
	if compressed {
		opts = append(opts, grpc.UseCompressor(coding))
	}
	return cc.NewStream(ctx, bothWays, method, opts...)
}

// bytesOf is the wire form of a message of ours.
func bytesOf(m proto.Message) ([]byte, error) { return proto.Marshal(m) }

// frameOf reads what came.
func frameOf(b []byte) (*streampb.Frame, error) {
	f := &streampb.Frame{}
	return f, proto.Unmarshal(b, f)
}

// endOf names how the other side ended a call.
func endOf(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "EOF"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled, status.Code(err) == codes.DeadlineExceeded:
		return "by itself" // the attack was over
	}
	if s, ok := status.FromError(err); ok {
		return s.Code().String() + ": " + s.Message()
	}
	return "error"
}
