package kube

import (
	"fmt"
	"testing"
)

func TestBuriedAreTheLast(t *testing.T) {
	var b buried
	const more = 10
	for i := range maxBuried + more {
		b.add(fmt.Sprint(i))
	}
	for i := range maxBuried + more {
		if got, want := b.has(fmt.Sprint(i)), i >= more; got != want {
			t.Fatalf("has(%d) = %t, want %t", i, got, want)
		}
	}
	if len(b.uids) != maxBuried || len(b.line) != maxBuried {
		t.Errorf("%d and %d are remembered, want %d", len(b.uids), len(b.line), maxBuried)
	}
}
