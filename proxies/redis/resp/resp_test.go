package resp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/heap"
)

func TestCopyValues(t *testing.T) {
	for _, whole := range []string{
		"+OK\r\n", "-ERR x\r\n", ":-1\r\n", "$0\r\n\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n", "=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n",
		"*3\r\n$1\r\na\r\n*1\r\n:1\r\n%1\r\n+k\r\n~1\r\n+v\r\n", ">2\r\n+a\r\n+b\r\n", "|1\r\n+k\r\n+v\r\n+OK\r\n", "$20000\r\n" + strings.Repeat("x", 20000) + "\r\n",
	} {
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		in := NewWire(strings.NewReader(whole + "+next\r\n"))
		if err := in.CopyValues(w, 1, false); err != nil {
			t.Errorf("%.40q: %v", whole, err)
		}
		if err := w.Flush(); err != nil || out.String() != whole {
			t.Errorf("%.40q became %.40q, %v", whole, out.String(), err)
		}
		if line, err := in.Line(); err != nil || string(line) != "+next" {
			t.Errorf("after %.40q there is %q, %v", whole, line, err)
		}
		for n := range min(len(whole), 60) {
			if err := NewWire(strings.NewReader(whole[:n])).CopyValues(bufio.NewWriter(io.Discard), 1, false); err == nil || n > 0 && errors.Is(err, io.EOF) {
				t.Errorf("the first %d bytes of %.40q: %v", n, whole, err)
			}
		}
	}
	for _, bad := range []string{
		"OK\r\n", "\r\n", "$1\r\nab\r\n", "$01\r\na\r\n", "$-2\r\n", "$+1\r\na\r\n", "$67108865\r\n", "*99999999999\r\n", "$\r\n", "+OK\n", "*1\r\n?\r\n", "+" + strings.Repeat("x", MaxLine) + "\r\n",
	} {
		if err := NewWire(strings.NewReader(bad)).CopyValues(bufio.NewWriter(io.Discard), 1, false); err == nil {
			t.Errorf("%.40q is taken", bad)
		}
	}
}

// A string of any length is read as a whole.
func TestBulk(t *testing.T) {
	for _, n := range []int{0, 1, MaxLine - 6, MaxLine, 1 << 20} {
		want := strings.Repeat("x", n)
		text := string(AppendBulk(nil, want))
		header, rest, _ := strings.Cut(text, "\r\n")
		in := NewWire(strings.NewReader(rest + "+next\r\n"))
		whole, value, err := in.Bulk(n)
		if err != nil || string(whole) != text || string(value) != want {
			t.Fatalf("after %s: %d and %d bytes, %v", header, len(whole), len(value), err)
		}
		if line, err := in.Line(); err != nil || string(line) != "+next" {
			t.Errorf("after %s there is %q, %v", header, line, err)
		}
	}
	for _, bad := range []string{"", "abc", "abcd", "abcd\r", "abcdefg"} {
		if whole, _, err := NewWire(strings.NewReader(bad)).Bulk(4); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("of %q: %q, %v", bad, whole, err)
		}
	}
}

// What is taken as commands is what it says, and its memory is bounded.
// mostWireHeap is what n bytes of RESP may take: eight times themselves, the reader's
// buffer, and a whole head.
func mostWireHeap(n int) uint64 { return uint64(8*n + 4*MaxHead + 64<<10) }

func FuzzCommand(f *testing.F) {
	for _, seed := range []string{"*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nQUIT\r\n", "PING\r\n", "*1\r\n$40000\r\n", "*-1\r\n", "*2\r\n$0\r\n\r\n$1\r\n\r\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		in, rest := NewWire(bytes.NewReader(input)), input
		for {
			var c Command
			var err error
			if took := heap.Of(func() { c, err = in.Command() }); took > mostWireHeap(len(input)) {
				t.Errorf("%d bytes of heap for %d", took, len(input))
			}
			if err != nil {
				return
			}
			if size := len(strings.Join(c.Args, "")); size > MaxHead || len(c.Args) > MaxHeadArgs {
				t.Fatalf("%d bytes in %d arguments are held", size, len(c.Args))
			}
			if c.Left > 0 {
				return
			}
			want := EncodeCommand(c.Args...)
			if !bytes.HasPrefix(rest, want) {
				t.Fatalf("%q was read of %q", want, rest)
			}
			rest = rest[len(want):]
		}
	})
}

// A value passes unchanged, or not at all, and nothing after it is touched.
func FuzzCopyValues(f *testing.F) {
	for _, seed := range []string{"*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n+k\r\n$-1\r\n", "|1\r\n+k\r\n+v\r\n+OK\r\n", ">1\r\n_\r\n", "$5\r\nhello\r\n+x\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		in := NewWire(bytes.NewReader(input))
		var err error
		if took := heap.Of(func() { err = in.CopyValues(w, 1, false) }); took > mostWireHeap(len(input)) {
			t.Errorf("%d bytes of heap for %d", took, len(input))
		}
		if flushed := w.Flush(); flushed != nil {
			t.Fatal(flushed)
		}
		if !bytes.HasPrefix(input, out.Bytes()) {
			t.Fatalf("%q became %q", input, out.Bytes())
		}
		if err != nil {
			return
		}
		rest, err := io.ReadAll(in)
		if err != nil || !bytes.Equal(append(out.Bytes(), rest...), input) {
			t.Fatalf("%q became %q and %q, %v", input, out.Bytes(), rest, err)
		}
	})
}
