package token_test

import (
	"encoding/base64"
	"errors"
	"strings"
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
		k.AcknowledgedChanged()
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

// A token that is made out to a person counts as any other, says her name, lives no longer than
// others, and is none for a cluster Secret.
func TestTokensOfPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeys(t, &secrets{}, quick)
		defer run(t, k, true)()
		synctest.Wait()
		k.AcknowledgedChanged()
		synctest.Wait()
		edge, holder := kit.Agent(t, "edge-1"), token.Holder{UID: "u1", Created: time.Now().Add(-time.Hour)}
		others, err := k.Sign(edge, holder)
		if err != nil {
			t.Fatal(err)
		}
		longest := others.Expiry.Sub(others.IssuedAt)
		for asked, want := range map[time.Duration]time.Duration{time.Minute + time.Millisecond: time.Minute, 1000 * time.Hour: longest} {
			signed, err := k.SignFor(edge, holder, "jane \"d\"", asked)
			if err != nil || signed.Expiry.Sub(signed.IssuedAt) != want {
				t.Fatalf("asked for %v: %v, %v", asked, signed.Expiry.Sub(signed.IssuedAt), err)
			}
			if of, err := k.Verify(signed.Text); err != nil || of != edge || !k.Bound(signed.Text, holder) {
				t.Errorf("Verify() = %v, %v", of, err)
			}
			if _, err := k.Inspect(edge, holder, signed.Text); !errors.Is(err, token.ErrInvalid) {
				t.Errorf("Inspect() = %v", err)
			}
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(signed.Text, ".")[1])
			if err != nil || !strings.Contains(string(payload), `"username":"jane \"d\""`) {
				t.Errorf("it says %s, %v", payload, err)
			}
		}
		for _, person := range []string{"", strings.Repeat("j", token.MaxPerson+1)} {
			if _, err := k.SignFor(edge, holder, person, time.Minute); err == nil {
				t.Errorf("a token of a person of %d bytes", len(person))
			}
		}
	})
}
