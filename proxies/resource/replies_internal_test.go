package resource

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
)

func key(t *testing.T, agent, path string) replyKey {
	t.Helper()
	name, err := identity.ParseAgentName(agent)
	if err != nil {
		t.Fatal(err)
	}
	return replyKey{agent: name, uid: "1", path: path}
}

// Memory is bounded in all, of an agent, and in number; what was used last stays.
func TestRepliesAreBounded(t *testing.T) {
	r, err := NewReplies(RepliesConfig{MaxBytes: 20 << 20, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	put := func(agent, path string, size int) {
		t.Helper()
		r.store(&reply{key: key(t, agent, path), at: time.Unix(1, 0), packed: make([]byte, size)})
	}
	has := func(agent, path string) bool {
		_, found := r.memory(key(t, agent, path))
		return found
	}
	// In number.
	for n := range maxReplies + 1 {
		put("edge-1", fmt.Sprintf("/apis/%d", n), 1)
	}
	if count, _ := r.held(); count != maxReplies || has("edge-1", "/apis/0") || !has("edge-1", "/apis/1") {
		t.Errorf("%d replies of an agent, want %d, the oldest gone", count, maxReplies)
	}
	// The bytes of an agent: those of others stay.
	put("edge-2", "/version", 1)
	for n := range 4 {
		put("edge-1", fmt.Sprintf("/openapi/%d", n), maxAgentBytes/3)
	}
	if of := r.agents[key(t, "edge-1", "").agent]; of.bytes > maxAgentBytes || !has("edge-2", "/version") || !has("edge-1", "/openapi/3") || has("edge-1", "/openapi/0") {
		t.Errorf("%d bytes of an agent", of.bytes)
	}
	// The bytes of all: what was not used for longest goes, whosever it is.
	has("edge-2", "/version")
	for n := range 5 {
		put(fmt.Sprintf("edge-%d", n+3), "/openapi/v2", maxAgentBytes/2)
	}
	if _, bytes := r.held(); bytes > 20<<20 || has("edge-1", "/openapi/3") {
		t.Errorf("%d bytes in all", bytes)
	}
	// One that would fit nowhere is not kept.
	put("edge-9", "/openapi/v2", maxAgentBytes)
	if has("edge-9", "/openapi/v2") {
		t.Error("a reply above the limit of an agent is kept")
	}
	// What is gone is accounted for.
	for element := r.order.Front(); element != nil; element = r.order.Front() {
		r.forget(element.Value.(*reply).key)
	}
	if count, bytes := r.held(); count != 0 || bytes != 0 || len(r.agents) != 0 {
		t.Errorf("%d replies, %d bytes, %d agents after all were forgotten", count, bytes, len(r.agents))
	}
}
