package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

// What the API server refused it has read; what it did not come to has cost a request.
func TestRefusedWritesCost(t *testing.T) {
	w := ownership.Write{Op: ownership.Create, Raw: []byte(`{"a":"` + strings.Repeat("<", 1000) + `"}`)}
	stored := len(w.Raw) + 5*1000
	for err, want := range map[error]int{
		stream.ErrConflict: 0, stream.ErrNotFound: 0,
		fmt.Errorf("validation: %w", stream.ErrRefused): stored, stream.ErrUnavailable: stored, errors.New("other"): stored,
	} {
		var p Paid
		p.failed(w, err)
		if p.Writes != 1 || p.Bytes != want {
			t.Errorf("%v costs %+v, want %d bytes", err, p, want)
		}
	}
}
