package redis

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/proxies/redis/resp"
)

// writes counts them, and keeps what is written.
type writes struct {
	bytes.Buffer
	n int
}

func (w *writes) Write(b []byte) (int, error) {
	w.n++
	return w.Buffer.Write(b)
}

// A string of any length is written at once.
func TestStringIsWrittenAtOnce(t *testing.T) {
	for _, n := range []int{0, 1, resp.MaxLine - 6, resp.MaxLine, 1 << 20} {
		text := resp.AppendBulk(nil, strings.Repeat("x", n))
		var to writes
		out := bufio.NewWriterSize(&to, resp.MaxLine)
		if err := errors.Join((&reply{bulk: text}).write(out, true), out.Flush()); err != nil || to.n != 1 || to.String() != string(text) {
			t.Errorf("a string of %d bytes: %d bytes in %d writes, %v", n, to.Len(), to.n, err)
		}
	}
}
