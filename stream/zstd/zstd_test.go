package zstd_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	reference "github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/encoding"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/zstd"
	"github.com/argomesh/argomesh/test/heap"
)

// unpack returns what a decoder makes of packed, at most limit bytes and one, as
// gRPC reads it.
func unpack(c encoding.Compressor, packed []byte, limit int64) ([]byte, error) {
	r, err := c.Decompress(onlyReader{bytes.NewReader(packed)})
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	return raw, errors.Join(err, r.(io.Closer).Close())
}

// content is half text, half noise.
func content(length int) []byte {
	random := rand.New(rand.NewPCG(uint64(length), 7))
	raw := make([]byte, length)
	for i := range raw {
		if raw[i] = "guestbook"[i%9]; i%64 < 32 {
			raw[i] = byte(random.Uint32())
		}
	}
	return raw
}

func TestIsRegistered(t *testing.T) {
	if c := encoding.GetCompressor(zstd.Name); c == nil || c.Name() != "zstd" {
		t.Fatalf("GetCompressor(%q) = %v", zstd.Name, c)
	}
}

// Every message comes back as it was, from ours and from another decoder.
func TestMessagesSurvive(t *testing.T) {
	c := zstd.New()
	other, err := reference.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, length := range []int{0, 1, 2, 255, 256, 257, 511, 512, 1022, 1023, 1024, 1025, 4 << 10, 128 << 10, 1<<20 + 1, stream.MaxFrameBytes} {
		raw := content(length)
		for name, pieces := range map[string]int{"at once": max(length, 1), "in pieces of 7": 7, "in pieces of 1000": 1000} {
			if length > 1000*pieces && length != pieces {
				continue // as many calls
			}
			var packed bytes.Buffer
			w, err := c.Compress(&packed)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < length; at += pieces {
				if _, err := w.Write(raw[at:min(at+pieces, length)]); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := unpack(c, packed.Bytes(), stream.MaxFrameBytes); err != nil || !bytes.Equal(got, raw) {
				t.Errorf("%d bytes %s: Decompress() = %d bytes, %v", length, name, len(got), err)
			}
			if got, err := other.DecodeAll(packed.Bytes(), nil); err != nil || !bytes.Equal(got, raw) {
				t.Errorf("%d bytes %s: another decoder has %d bytes, %v", length, name, len(got), err)
			}
			if length < 1024 && packed.Len() > length+10 || length >= 1024 && packed.Len() > length*3/4 {
				t.Errorf("%d bytes %s are %d on the wire", length, name, packed.Len())
			}
		}
	}
}

// A status is a sixth on the wire, and a batch of them less.
func TestStatusesAreWorthIt(t *testing.T) {
	for statuses, least := range map[int]int{1: 4, 100: 10} {
		raw := batch(t, statuses)
		var packed bytes.Buffer
		compress(t, zstd.New(), &packed, raw)
		if packed.Len()*least > len(raw) {
			t.Errorf("%d statuses of %d bytes are %d on the wire, want a %dth at most", statuses, len(raw), packed.Len(), least)
		}
	}
}

// Coders go back to their pool only when no one uses them any more.
func TestConcurrentUse(t *testing.T) {
	c := zstd.New()
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := range 50 {
				raw := content(worker*997 + i*100)
				var packed bytes.Buffer
				compress(t, c, &packed, raw)
				if got, err := unpack(c, packed.Bytes(), stream.MaxFrameBytes); err != nil || !bytes.Equal(got, raw) {
					t.Errorf("Decompress() of %d bytes = %d bytes, %v", len(raw), len(got), err)
				}
			}
		})
	}
	wait.Wait()
}

// Few bytes that unpack to very many are read up to the limit only, and what is
// asked for beyond the largest window is refused before it is allocated.
func TestBombs(t *testing.T) {
	pack := func(length int64, options ...reference.EOption) []byte {
		var packed bytes.Buffer
		w, err := reference.NewWriter(&packed, options...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, zeros{}, length); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return packed.Bytes()
	}
	c := zstd.New()
	for name, tt := range map[string]struct {
		packed  []byte
		refused bool
		memory  uint64
	}{
		"64 MiB of zeros": {pack(64<<20, reference.WithWindowSize(1<<20)), false, 8 << 20},
		"a large window":  {pack(16<<20, reference.WithWindowSize(16<<20)), true, 4 << 20},
		// A header that announces a terabyte in a single segment, and nothing else.
		"a large size": {[]byte{0x28, 0xB5, 0x2F, 0xFD, 0xE0, 0, 0, 0, 0, 0, 1, 0, 0}, true, 4 << 20},
		// Magic and window descriptor of the largest window there is.
		"the largest window": {[]byte{0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xFF, 1, 0, 0}, true, 4 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var got int64
			var err error
			used := heap.Of(func() {
				var r io.Reader
				if r, err = c.Decompress(onlyReader{bytes.NewReader(tt.packed)}); err != nil {
					return
				}
				got, err = io.Copy(io.Discard, io.LimitReader(r, stream.MaxFrameBytes+1))
				err = errors.Join(err, r.(io.Closer).Close())
			})
			if (err != nil) != tt.refused || err == nil && got != stream.MaxFrameBytes+1 {
				t.Errorf("Decompress() of %d bytes = %d bytes, %v", len(tt.packed), got, err)
			}
			if used > tt.memory {
				t.Errorf("%d bytes were allocated for %d on the wire, want at most %d", used, len(tt.packed), tt.memory)
			}
			// The decoder is as good as new.
			var packed bytes.Buffer
			compress(t, c, &packed, []byte("after"))
			if got, err := unpack(c, packed.Bytes(), 100); err != nil || string(got) != "after" {
				t.Errorf("the next message = %q, %v", got, err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	c := zstd.New()
	for _, length := range []int{10, 4 << 10, 4 << 20} {
		w, err := c.Compress(full{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(content(length))
		if err = errors.Join(err, w.Close()); !errors.Is(err, errFull) {
			t.Errorf("%d bytes to a writer that fails: %v", length, err)
		}
		var packed bytes.Buffer
		compress(t, c, &packed, content(length))
		if got, err := unpack(c, packed.Bytes(), stream.MaxFrameBytes); err != nil || len(got) != length {
			t.Errorf("afterwards %d bytes come back as %d, %v", length, len(got), err)
		}
	}
}

// FuzzDecompress holds that whatever a peer sends is content within the limit or
// an error.
func FuzzDecompress(f *testing.F) {
	c := zstd.New()
	for _, length := range []int{0, 3, 300, 5000} {
		var packed bytes.Buffer
		compress(f, c, &packed, content(length))
		f.Add(packed.Bytes())
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		const limit = 1 << 20
		var raw []byte
		var err error
		if took := heap.Of(func() { raw, err = unpack(c, packed, limit) }); took > 16<<20 {
			t.Errorf("%d bytes of heap for %d", took, len(packed))
		}
		if len(raw) > limit+1 {
			t.Errorf("Decompress() = %d bytes, %v", len(raw), err)
		}
	})
}
