package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/streampb"
	_ "github.com/argomesh/argomesh/stream/zstd"
)

// bytesBelow is a transport that has all bytes already.
type bytesBelow struct {
	io.Reader
	coding string
	read   int // bytes asked for by Read
}

func (b *bytesBelow) ReadMessageHeader(header []byte) error {
	_, err := io.ReadFull(b.Reader, header)
	return err
}

func (b *bytesBelow) Read(n int) (mem.BufferSlice, error) {
	b.read += n
	data := make([]byte, n)
	_, err := io.ReadFull(b.Reader, data)
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

func (b *bytesBelow) RecvCompress() string { return b.coding }

// message is what comes of a call for one message.
func message(payload []byte, compressed byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{compressed}, uint32(len(payload))), payload...)
}

func packed(t testing.TB, coding string, payload []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := encoding.GetCompressor(coding).Compress(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(payload); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func newReader(t testing.TB, raw []byte, coding string) (*reader, *bytesBelow) {
	t.Helper()
	q, err := quota.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	below := &bytesBelow{Reader: bytes.NewReader(raw), coding: coding}
	return &reader{below: below, quota: q}, below
}

func edge(t testing.TB) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func marshalled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Messages of every length arrive as they were sent, in every coding, and neither what
// is on the wire nor what it unpacks to may be a byte longer than its receiver takes.
func TestReceive(t *testing.T) {
	of := func(length int) *streampb.Frame {
		f := &streampb.Frame{Body: &streampb.Frame_Goodbye{Goodbye: &streampb.Goodbye{}}}
		for n := length; proto.Size(f) != length; n-- {
			f.GetGoodbye().Reason = strings.Repeat("r", n)
		}
		return f
	}
	for _, coding := range []string{"zstd", "gzip", ""} {
		for _, most := range []int{stream.MaxSmallBytes, stream.MaxFrameBytes} {
			for _, length := range []int{100, 1024, stream.MaxSmallBytes - 1, stream.MaxSmallBytes, stream.MaxSmallBytes + 1, 1 << 20, stream.MaxFrameBytes, stream.MaxFrameBytes + 1} {
				want := of(length)
				payload, flag := marshalled(t, want), byte(0)
				if coding != "" {
					payload, flag = packed(t, coding, payload), 1
				}
				r, below := newReader(t, message(payload, flag), coding)
				got := &streampb.Frame{}
				err := r.receive(t.Context(), &Message{Into: got, Most: most, Peer: edge(t)})
				switch {
				case length > most:
					if stream.LimitOf(err) != "argomesh.stream.v1.Frame bytes" {
						t.Errorf("%q: %d bytes, where %d are taken: %v", coding, length, most, err)
					}
					if flag == 0 && below.read > 0 {
						t.Errorf("%d bytes, where %d are taken: they are read", length, most)
					}
				case err != nil || !proto.Equal(got, want):
					t.Errorf("%q: %d bytes, where %d are taken: %v, or another message", coding, length, most, err)
				}
			}
		}
	}
}

// What is no message of the coding that the call names is malformed.
func TestReceiveRefuses(t *testing.T) {
	frame := marshalled(t, &streampb.Frame{Body: &streampb.Frame_Goodbye{Goodbye: &streampb.Goodbye{Reason: "drain"}}})
	twice := append(bytes.Clone(frame), frame...)
	two := append(bytes.Clone(frame), marshalled(t, &streampb.Frame{Body: &streampb.Frame_History{History: &streampb.History{Id: "h"}}})...)
	group := protowire.AppendTag(protowire.AppendTag(nil, 99, protowire.StartGroupType), 99, protowire.EndGroupType)
	for name, tt := range map[string]struct {
		raw    []byte
		coding string
	}{
		"compressed without a coding":   {message(frame, 1), ""},
		"compressed by identity":        {message(frame, 1), "identity"},
		"a flag that nobody knows":      {message(frame, 2), "zstd"},
		"not of the coding":             {message(frame, 1), "zstd"},
		"not of the coding, gzip":       {message(frame, 1), "gzip"},
		"cut off when packed":           {message(packed(t, "zstd", bytes.Repeat([]byte("x"), 1<<20))[:40], 1), "zstd"},
		"a field that comes twice":      {message(twice, 0), ""},
		"two bodies":                    {message(two, 0), ""},
		"a group":                       {message(group, 0), ""},
		"text that is not UTF-8":        {message(bytes.Replace(frame, []byte("drain"), []byte("\xff\xfe\xfd\xfc\xfb"), 1), 0), ""},
		"bytes that are not fields":     {message([]byte("\xff\xff\xff garbage"), 0), ""},
		"a field longer than the frame": {message([]byte{0x0a, 0x05, 'n', 'o'}, 0), ""},
	} {
		r, _ := newReader(t, tt.raw, tt.coding)
		if err := r.receive(t.Context(), &Message{Into: &streampb.Frame{}, Most: stream.MaxFrameBytes}); stream.ViolationOf(err) != stream.ViolationMalformed {
			t.Errorf("%s: %v, want %q", name, err, stream.ViolationMalformed)
		}
	}
}

// Fields that no one knows are passed over, up to a number.
func TestUnknownFields(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	for n, limit := range map[int]string{maxUnknown: "", maxUnknown + 1: "unknown fields"} {
		f := &streampb.Frame{}
		r, _ := newReader(t, message(bytes.Repeat(unknown, n), 0), "")
		if err := r.receive(t.Context(), &Message{Into: f, Most: stream.MaxFrameBytes}); stream.LimitOf(err) != limit || limit == "" && err != nil {
			t.Errorf("%d of them: %v, want the limit %q", n, err, limit)
		}
		if n := len(f.ProtoReflect().GetUnknown()); n > 0 {
			t.Errorf("%d bytes of them are kept", n)
		}
	}
}

// A long message is not read before there is room for it, a small one waits for no one,
// and who waits ends with its call.
func TestReceiveWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := marshalled(t, &streampb.Frame{Body: &streampb.Frame_Goodbye{Goodbye: &streampb.Goodbye{Reason: "drain"}}})
		long := marshalled(t, &streampb.Frame{Body: &streampb.Frame_Goodbye{Goodbye: &streampb.Goodbye{Reason: strings.Repeat("r", 1<<20)}}})
		for name, tt := range map[string]struct {
			raw    []byte
			coding string
			full   quota.Use
			read   bool // of the wire, while there is no room
		}{
			"as it is":                 {message(long, 0), "", quota.Arriving, false},
			"as it is, to be decoded":  {message(long, 0), "", quota.Decoding, true},
			"packed, to be decoded":    {message(packed(t, "zstd", long), 1), "zstd", quota.Decoding, true},
			"gzipped, to be decoded":   {message(packed(t, "gzip", long), 1), "gzip", quota.Decoding, true},
			"another long one, no end": {message(long, 0), "", quota.Arriving, false},
		} {
			r, below := newReader(t, tt.raw, tt.coding)
			release, err := r.quota.Acquire(t.Context(), edge(t), tt.full, quota.PeerWorking)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			var waits atomic.Bool
			go func() {
				done <- r.receive(ctx, &Message{Into: &streampb.Frame{}, Most: stream.MaxFrameBytes, Peer: edge(t), Waits: &waits})
			}()
			synctest.Wait()
			if !waits.Load() {
				t.Errorf("%s: it is not said that it waits", name)
			}
			if (below.read > 0) != tt.read {
				t.Errorf("%s: %d bytes are read while there is no room", name, below.read)
			}
			other := &reader{below: &bytesBelow{Reader: bytes.NewReader(message(small, 0))}, quota: r.quota}
			if err := other.receive(ctx, &Message{Into: &streampb.Frame{}, Most: stream.MaxFrameBytes, Peer: edge(t)}); err != nil {
				t.Errorf("%s: a small one at that time: %v", name, err)
			}
			if strings.Contains(name, "no end") {
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v after the end of its call", name, err)
				}
				release()
				continue
			}
			release()
			if err := <-done; err != nil || waits.Load() {
				t.Errorf("%s: %v, and it is said to wait: %t", name, err, waits.Load())
			}
			cancel()
		}
	})
}

// Nothing that a peer sends takes more than its room, and nothing that is read stays
// taken.
func FuzzReceive(f *testing.F) {
	frame := marshalled(f, stream.FrameOf(stream.Batch{Events: []stream.Event{{
		ID: "1", Verb: stream.Apply, Data: []byte(`{}`), Revision: 1,
		Key:     stream.EntryKey{Collection: stream.Applications, Name: "app"},
		Version: stream.Version{SourceUID: "uid", Hash: stream.HashOf([]byte(`{}`))},
	}}}))
	bomb := bytes.Repeat([]byte{0x32, 0x02, 0x0a, 0x00}, stream.MaxFrameBytes/4)
	for i, coding := range []string{"", "zstd", "gzip"} {
		for _, payload := range [][]byte{frame, bomb, nil, []byte("garbage")} {
			if coding != "" {
				payload = packed(f, coding, payload)
			}
			f.Add(payload, uint8(i))
		}
	}
	q, err := quota.New(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, payload []byte, coding uint8) {
		of := []string{"", "zstd", "gzip"}[coding%3]
		flag := min(coding%3, 1)
		for _, into := range []proto.Message{&streampb.Frame{}, &streampb.Chunk{}} {
			r := &reader{below: &bytesBelow{Reader: bytes.NewReader(message(payload, flag)), coding: of}, quota: q}
			m := Message{Into: into, Most: stream.MaxSmallBytes}
			if frame, ok := into.(*streampb.Frame); ok && len(payload)%2 == 0 {
				m = Message{Into: frame, Most: stream.MaxFrameBytes}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := r.receive(t.Context(), &m)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
				t.Errorf("%d bytes of heap for %d bytes", took, len(payload))
			}
			if err != nil && stream.ViolationOf(err) == "" {
				t.Errorf("an error of no kind: %v", err)
			}
		}
		release, err := q.Acquire(t.Context(), identity.AgentName{}, quota.Decoding, quota.PeerDecoding)
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}
