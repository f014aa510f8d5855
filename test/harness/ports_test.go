//go:build linux

package harness

import (
	"testing"
)

// A port is that of one harness until it is closed, whether something listens on it or not.
func TestPortIsOfOneHarness(t *testing.T) {
	a, b := &Harness{ports: newPortAllocator()}, &Harness{ports: newPortAllocator()}
	const span = 100
	a.ports.limit, b.ports.limit = lowestPort+span, lowestPort+span
	owner := map[int]*Harness{}
	for {
		before := len(owner)
		for _, h := range []*Harness{a, b} {
			port, err := h.Port()
			if err != nil {
				continue // all are given
			}
			if owner[port] != nil {
				t.Errorf("port %d is given twice", port)
			}
			owner[port] = h
		}
		if len(owner) == before {
			break
		}
	}
	if len(owner) < span/2 {
		t.Errorf("%d ports of %d are given", len(owner), span)
	}
	if err := a.ports.free(); err != nil {
		t.Fatal(err)
	}
	port, err := b.Port()
	if err != nil || owner[port] != a {
		t.Errorf("Port() after the other harness is closed = %d, %v, want one of that harness", port, err)
	}
	if err := b.ports.free(); err != nil {
		t.Fatal(err)
	}
}
