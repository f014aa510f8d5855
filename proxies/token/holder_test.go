package token_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/test/kit"
)

// A token is of one Agent object, and of one generation of its tokens; so one agent's can
// be ended, and anyone who has its name later is another.
func TestTokensAreOfOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{}
		k := newKeys(t, s, quick)
		defer run(t, k, true)()
		synctest.Wait()
		k.Look()
		synctest.Wait()
		edge := kit.Agent(t, "edge-1")
		before := time.Now()
		first := token.Holder{UID: "u1", Created: before.Add(-time.Hour)}
		bound, err := k.Sign(edge, first)
		if err != nil {
			t.Fatal(err)
		}
		unbound, err := k.Sign(edge, token.Holder{}) // as a release before signed it
		if err != nil {
			t.Fatal(err)
		}
		raised, later := first, token.Holder{UID: "u2", Created: before.Add(2 * time.Minute)}
		raised.Generation = 1
		ended, err := k.Sign(edge, raised)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			text string
			of   token.Holder
			want bool
		}{
			"its own":                               {bound.Text, first, true},
			"after its generation was raised":       {bound.Text, raised, false},
			"of the Agent that was made anew":       {bound.Text, later, false},
			"of the new generation":                 {ended.Text, raised, true},
			"of a generation that is not known yet": {ended.Text, first, true},
			"of an earlier release":                 {unbound.Text, first, true},
			"of an earlier release, ended":          {unbound.Text, raised, false},
			"of an earlier release and Agent":       {unbound.Text, later, false},
			"of nobody":                             {"e30.e30.e30", first, false},
		} {
			if got := k.Bound(c.text, c.of); got != c.want {
				t.Errorf("%s: Bound() = %v", name, got)
			}
			if _, err := k.Inspect(edge, c.of, c.text); (err == nil) != c.want || err != nil && !errors.Is(err, token.ErrInvalid) {
				t.Errorf("%s: Inspect() = %v", name, err)
			}
		}
	})
}
