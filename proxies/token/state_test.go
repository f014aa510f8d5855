package token_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/proxies/token"
)

const hour = time.Hour

var rotation = token.Rotation{Life: 24 * hour, KeyLife: 7 * 24 * hour}

// keeper calls Next as a process does, and names keys a, b, c in the order in which
// they are made.
type keeper struct {
	t     *testing.T
	r     token.Rotation
	state token.State
	start time.Time
	names map[string]string
	acked map[string]bool // by name
}

func newKeeper(t *testing.T) *keeper {
	return &keeper{t: t, r: rotation, start: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), names: map[string]string{}, acked: map[string]bool{}}
}

func (k *keeper) name(id string) string {
	if k.names[id] == "" {
		k.names[id] = string(rune('a' + len(k.names)))
	}
	return k.names[id]
}

// at calls Next at that time until it changes nothing more, and returns the keys
// and what was changed.
func (k *keeper) at(after time.Duration) (keys, changes string) {
	k.t.Helper()
	now := k.start.Add(after)
	var said []string
	for range 10 {
		fresh, err := token.NewKey(now)
		if err != nil {
			k.t.Fatal(err)
		}
		next, did := k.r.Next(k.state, now, func(id string) bool { return k.acked[k.name(id)] }, fresh)
		for _, change := range did {
			said = append(said, change.Kind+" "+k.name(change.KeyID))
		}
		k.state = next
		if len(did) == 0 {
			role := func(key *token.Key) string {
				if key == nil {
					return "-"
				}
				return k.name(key.ID)
			}
			return fmt.Sprintf("next %s current %s previous %s", role(next.Next), role(next.Current), role(next.Previous)), strings.Join(said, ", ")
		}
	}
	k.t.Fatalf("it never comes to an end: %v", said)
	return "", ""
}

// expect is at with what it must return.
func (k *keeper) expect(after time.Duration, keys, changes string) {
	k.t.Helper()
	gotKeys, gotChanges := k.at(after)
	if diff := cmp.Diff([]string{keys, changes}, []string{gotKeys, gotChanges}); diff != "" {
		k.t.Errorf("after %v (-want +got):\n%s", after, diff)
	}
}

func TestKeysFollowOneAnother(t *testing.T) {
	k := newKeeper(t)
	k.expect(0, "next a current - previous -", "created a")
	k.expect(100*hour, "next a current - previous -", "") // no one has acknowledged it
	k.acked["a"] = true
	k.expect(101*hour, "next b current a previous -", "promoted a, created b")
	week := 101*hour + 7*24*hour
	k.acked["b"] = true
	k.expect(week-time.Second, "next b current a previous -", "")
	k.expect(week, "next c current b previous a", "promoted b, created c")
	longest := 24*hour + token.Leeway
	k.expect(week+longest-time.Second, "next c current b previous a", "")
	k.expect(week+longest, "next c current b previous -", "retired a")
	k.expect(week+7*24*hour, "next c current b previous -", "") // c is not acknowledged
	k.expect(week+70*24*hour, "next c current b previous -", "")
	k.acked["c"] = true
	k.expect(week+70*24*hour+1, "next d current c previous b", "promoted c, created d")
}

// The key before the last is never dropped early to make room for another.
func TestNoKeyIsPromotedWhileAnotherRetires(t *testing.T) {
	k := newKeeper(t)
	k.r = token.Rotation{Life: 24 * hour, KeyLife: 24 * hour}
	for _, name := range "abcdef" {
		k.acked[string(name)] = true
	}
	k.expect(0, "next b current a previous -", "created a, promoted a, created b")
	k.expect(24*hour, "next c current b previous a", "promoted b, created c")
	k.expect(48*hour, "next c current b previous a", "") // a's last token may be valid by a clock that is behind
	k.expect(48*hour+token.Leeway, "next d current c previous b", "retired a, promoted c, created d")
}

func TestLongerTokensAreAllowedForFirst(t *testing.T) {
	k := newKeeper(t)
	k.acked["a"], k.acked["b"] = true, true
	k.at(0)
	k.r.Life = 48 * hour
	k.expect(hour, "next b current a previous -", "extended a")
	k.r.Life = hour // tokens of 48 h are about
	k.expect(2*hour, "next b current a previous -", "")
	k.expect(7*24*hour, "next c current b previous a", "promoted b, created c")
	k.expect(9*24*hour, "next c current b previous a", "")
	k.expect(9*24*hour+token.Leeway, "next c current b previous -", "retired a")
}

func TestClockJumps(t *testing.T) {
	t.Run("ahead and back", func(t *testing.T) {
		k := newKeeper(t)
		k.acked["a"], k.acked["b"], k.acked["c"] = true, true, true
		k.at(0)
		year := 365 * 24 * hour
		k.expect(year, "next c current b previous a", "promoted b, created c")
		// Back: what was promoted in the future signs since now, and what a signed is kept.
		k.expect(hour, "next c current b previous a", "adjusted c, adjusted b, adjusted a")
		k.expect(25*hour, "next c current b previous a", "")
		k.expect(25*hour+token.Leeway, "next c current b previous -", "retired a")
		k.expect(hour+7*24*hour, "next d current c previous b", "promoted c, created d")
	})
	t.Run("back from the start", func(t *testing.T) {
		k := newKeeper(t)
		k.acked["a"] = true
		k.at(0)
		k.expect(-1000*hour, "next b current a previous -", "adjusted b, adjusted a")
		k.expect(-999*hour, "next b current a previous -", "")
	})
}

// A process that was killed at any point goes on where the Secret is.
func TestNextIsLevelBased(t *testing.T) {
	k := newKeeper(t)
	k.acked["a"], k.acked["b"] = true, true
	before, _ := k.at(0)
	for range 3 {
		if again, changes := k.at(0); again != before || changes != "" {
			t.Errorf("it changes %q by being asked again", changes)
		}
	}
}

func TestAgain(t *testing.T) {
	k := newKeeper(t)
	k.acked["a"], k.acked["b"] = true, true
	k.at(0)
	if got := k.r.RequeueAfter(k.state, k.start.Add(hour)); got != 7*24*hour-hour {
		t.Errorf("before the next key: %v", got)
	}
	k.at(7 * 24 * hour)
	if got := k.r.RequeueAfter(k.state, k.start.Add(7*24*hour)); got != 24*hour+token.Leeway {
		t.Errorf("before the previous one goes: %v", got)
	}
	if got := k.r.RequeueAfter(k.state, k.start.Add(100*24*hour)); got != time.Second {
		t.Errorf("overdue: %v", got)
	}
}
