package xds

import (
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/mesh"
)

// maxVersions is how many versions of the key set are remembered: an acknowledgement
// is of one of the newest.
const maxVersions = 32

// Acknowledged returns the IDs of the token keys that every connected Envoy has taken,
// sorted, and a channel that is closed when that changes. There are none while no
// Envoy is connected. A key may sign from the moment it is among them; whether it
// still is later says nothing, since Envoy keeps what it has when it is not
// connected.
func (s *Server) Acknowledged() (keys []string, changed <-chan struct{}) { return s.acks.current() }

// acknowledgements knows which version of the key set each stream has taken.
type acknowledgements struct {
	mu       sync.Mutex // guards all below
	streams  map[int64]*streamState
	versions []keyVersion // oldest first, at most maxVersions
	keys     []string     // what Acknowledged returns
	changed  notify.Broadcast
}

type keyVersion struct {
	version string
	keys    []string // sorted
}

type streamState struct {
	begun bool
	// nonce and version are of the newest key set sent.
	nonce, version string
	acked          string // version, empty for none
}

func newAcknowledgements() acknowledgements {
	return acknowledgements{streams: map[int64]*streamState{}}
}

// rendered records which keys a version of the key set has.
func (a *acknowledgements) rendered(version string, keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.versions = slices.DeleteFunc(a.versions, func(v keyVersion) bool { return v.version == version })
	a.versions = append(a.versions, keyVersion{version, keys})
	if over := len(a.versions) - maxVersions; over > 0 {
		a.versions = slices.Delete(a.versions, 0, over)
	}
	a.update() // an Envoy may have had it from an earlier principal
}

// open adds a stream unless there are limit already, and returns how many there are.
func (a *acknowledgements) open(id int64, limit int) (n int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.streams) >= limit {
		return len(a.streams), false
	}
	a.streams[id] = &streamState{}
	return len(a.streams), true
}

// closed removes a stream, and reports whether it was one that had been let in.
func (a *acknowledgements) closed(id int64) (n int, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	state, ok := a.streams[id]
	delete(a.streams, id)
	a.update()
	return len(a.streams), ok && state.begun
}

// begun reports whether a stream has been let in.
func (a *acknowledgements) begun(id int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	state, ok := a.streams[id]
	return ok && state.begun
}

// begin lets a stream in: from here on its keys count.
func (a *acknowledgements) begin(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if state, ok := a.streams[id]; ok {
		state.begun = true
		a.update()
	}
}

func (a *acknowledgements) sent(id int64, nonce, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if state, ok := a.streams[id]; ok {
		state.nonce, state.version = nonce, version
	}
}

// answered takes a request for the key set: an answer to what was sent, or the first
// one, which names the version that Envoy has acknowledged on an earlier stream.
func (a *acknowledgements) answered(id int64, nonce string, accepted bool, initial string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	state, ok := a.streams[id]
	if !ok {
		return
	}
	switch {
	case initial != "":
		state.acked = initial
	case nonce != "" && nonce == state.nonce && accepted:
		state.acked = state.version
	}
	a.update()
}

func (a *acknowledgements) current() ([]string, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.keys), a.changed.Next()
}

// update computes keys. The caller holds mu.
func (a *acknowledgements) update() {
	var (
		keys  []string
		first = true
	)
	for _, state := range a.streams {
		if !state.begun {
			continue // not let in yet
		}
		var taken []string
		for _, v := range a.versions {
			if v.version == state.acked {
				taken = v.keys
			}
		}
		if first {
			keys, first = slices.Clone(taken), false
			continue
		}
		keys = slices.DeleteFunc(keys, func(k string) bool { return !slices.Contains(taken, k) })
	}
	if slices.Equal(keys, a.keys) {
		return
	}
	a.keys = keys
	a.changed.Notify()
}

// keyIDs returns the IDs of the keys, sorted.
func keyIDs(t mesh.Tokens) []string {
	ids := make([]string, 0, len(t.Keys))
	for _, k := range t.Keys {
		ids = append(ids, k.ID)
	}
	slices.Sort(ids)
	return ids
}

// tokensVersion is the version of the key set among the resources.
func tokensVersion(r Resources) string {
	i := slices.IndexFunc(r.Extensions, func(e *corev3.TypedExtensionConfig) bool { return e.GetName() == tokensName })
	if i < 0 {
		return ""
	}
	return version(r.Extensions[i])
}
