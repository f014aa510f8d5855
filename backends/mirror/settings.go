package mirror

import (
	"sync/atomic"

	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

// settings is what the process tells the loop. Each word stands until the next one.
type settings struct {
	paused    atomic.Bool                        // of Pause
	history   atomic.Pointer[stream.History]     // of Announce; nil for nothing
	accept    atomic.Pointer[string]             // of Accept; nil for nothing
	info      atomic.Pointer[stream.SpokeInfo]   // of SetSpokeInfo; nil for nothing
	bounds    atomic.Pointer[bounds.Bounds]      // of Bound; nil for nothing
	linkState atomic.Pointer[presence.LinkState] // of ShowLink; nil for nothing
	recheck   atomic.Bool                        // RecheckHistory was called since the loop looked
	news      notify.Signal                      // has a value when one of them, or of the schemas, may have changed
}

// notify has the loop look again. It does not block.
func (t *settings) notify() {
	t.news.Notify()
}
