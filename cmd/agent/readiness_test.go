package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/client"
)

// Readiness tells the cases apart that look alike to anyone who only sees that nothing comes.
func TestStanding(t *testing.T) {
	active := func(failure error) linkStatus { return linkStatus{begun: true, active: true, failure: failure} }
	for name, tt := range map[string]struct {
		s        linkStatus
		not, but string // why it is not ready, or what is wrong although it is
	}{
		"starting":                        {s: linkStatus{}, not: "starting"},
		"nobody has the Lease yet":        {s: linkStatus{begun: true, failure: client.ErrNotTried}, not: "starting: waits for the Lease"},
		"standing by":                     {s: linkStatus{begun: true, standby: true, failure: client.ErrNotTried}, but: "another agent of this spoke works"},
		"the first connection":            {s: active(client.ErrNotTried), not: "under way"},
		"connected":                       {s: active(nil)},
		"hub away":                        {s: active(fmt.Errorf("%w: no route", stream.ErrUnavailable)), but: "the hub is away, and the spoke goes on by itself"},
		"suspended":                       {s: active(identity.ErrSuspended), but: "the hub has suspended this agent"},
		"suspended a moment ago":          {s: active(fmt.Errorf("%w: %w", identity.ErrDenied, stream.ErrRevoked)), but: "the hub has ended the connection"},
		"registered in another mode":      {s: active(fmt.Errorf("%w: configured as autonomous, but registered as managed", call.ErrMismatch)), not: "but registered as managed: the Agent on the hub says what to set"},
		"not registered":                  {s: active(identity.ErrDenied), not: "agentctl agent create"},
		"an SVID that counts for nothing": {s: active(identity.ErrUnauthenticated), not: "agentctl identity doctor"},
		"another protocol":                {s: active(stream.ErrIncompatible), not: "refused by the hub"},
		"not understood":                  {s: active(stream.ErrProtocol), not: "refused by the hub"},
		"an impostor":                     {s: active(fmt.Errorf("%w: %w", call.ErrImpostor, identity.ErrDenied)), but: "did not prove that it is the principal"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.s.ready()
			if (err != nil) != (tt.not != "") || err != nil && !strings.Contains(err.Error(), tt.not) {
				t.Errorf("ready() = %v, want %q", err, tt.not)
			}
			if err != nil {
				return
			}
			if err = tt.s.degraded(); (err != nil) != (tt.but != "") || err != nil && !strings.Contains(err.Error(), tt.but) {
				t.Errorf("degraded() = %v, want %q", err, tt.but)
			}
		})
	}
	if !errors.Is(identity.ErrSuspended, identity.ErrDenied) {
		t.Error("an agent that is suspended is admitted")
	}
}
