package pause_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/internal/pause"
)

// Who keeps changing an object gets it back ever more slowly, up to a minute.
func TestRestoresSlowDown(t *testing.T) {
	var r pause.Restores
	now := time.Unix(1_800_000_000, 0)
	var waits []time.Duration
	for range 9 {
		wait := r.Wait(time.Second, now)
		waits = append(waits, wait)
		now = now.Add(max(wait, 0))
		if again := r.Wait(time.Second, now); again > 0 {
			t.Fatalf("after a wait of %v it is %v more", wait, again)
		}
		r.Restored(now)
	}
	var want []time.Duration
	for _, s := range []int{0, 1, 2, 4, 8, 16, 32, 60, 60} {
		want = append(want, time.Duration(s)*time.Second)
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	for range 100 {
		r.Restored(now)
	}
	if wait := r.Wait(2*time.Second, now); wait != pause.Most {
		t.Errorf("after a hundred restores the wait is %v", wait)
	}
	if wait := r.Wait(time.Second, now.Add(5*time.Minute)); wait > 0 {
		t.Errorf("five minutes later: %v", wait)
	}
	if wait := r.Wait(time.Second, now.Add(pause.Calm+time.Second)); wait != 0 {
		t.Errorf("after a calm time the wait is %v, want none", wait)
	}
	r.Restored(now)
	if wait := r.Wait(time.Second, now); wait != time.Second {
		t.Errorf("the first pause after a calm time is %v", wait)
	}
}

func TestShorter(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {2, 3, 2}, {3, 2, 2}} {
		if got := pause.Shorter(c.a, c.b); got != c.want {
			t.Errorf("Shorter(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
