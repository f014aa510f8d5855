package call_test

import (
	"errors"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

func TestBackOff(t *testing.T) {
	const shortest, longest, upgrade = 250 * time.Millisecond, 15 * time.Second, 3 * time.Minute
	b := call.BackOff{Min: shortest, Max: longest, Upgrade: upgrade}
	away := errors.New("away")
	tests := map[string]struct {
		failures int
		err      error
		from, to time.Duration
	}{
		"after a connection that was up": {0, nil, 0, shortest},
		"the first failure":              {1, away, 0, 2 * shortest},
		"the third":                      {3, away, 0, 8 * shortest},
		"the sixth":                      {6, away, 0, longest},
		"the thousandth":                 {1000, away, 0, longest},
		"not registered":                 {1, identity.ErrDenied, longest / 4, longest},
		"not authenticated":              {1, identity.ErrUnauthenticated, longest / 4, longest},
		"registered otherwise":           {1, call.ErrMismatch, longest / 4, longest},
		"revoked":                        {0, stream.ErrRevoked, longest / 4, longest},
		"another protocol":               {0, stream.ErrIncompatible, upgrade / 3, upgrade},
		"we broke the protocol":          {1, stream.ErrProtocol, longest / 4, longest},
		"it broke the protocol":          {0, stream.ViolationHash.Err(), longest / 4, longest},
	}
	for name, tt := range tests {
		least, most := time.Duration(1<<62), time.Duration(0)
		for range 2000 {
			d := b.Pause(tt.failures, tt.err)
			if d < tt.from || d > tt.to {
				t.Fatalf("%s: Pause() = %s, want %s to %s", name, d, tt.from, tt.to)
			}
			least, most = min(least, d), max(most, d)
		}
		// All of the range is used, or a thousand agents would come at once.
		if margin := (tt.to - tt.from) / 10; least > tt.from+margin || most < tt.to-margin {
			t.Errorf("%s: Pause() is from %s to %s, want it spread from %s to %s", name, least, most, tt.from, tt.to)
		}
	}
}
