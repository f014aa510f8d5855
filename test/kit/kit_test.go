package kit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/argomesh/argomesh/test/kit"
)

// What runs in the background is stopped in the reverse order, and once.
func TestBackground(t *testing.T) {
	var ended []string
	t.Run("inner", func(t *testing.T) {
		for _, name := range []string{"first", "second"} {
			stop := kit.Background(t, func(ctx context.Context) error {
				<-ctx.Done()
				ended = append(ended, name)
				return nil
			})
			if name == "second" {
				stop()
				stop()
			}
		}
	})
	if len(ended) != 2 || ended[0] != "second" || ended[1] != "first" {
		t.Errorf("ended: %v", ended)
	}
}

func TestEventually(t *testing.T) {
	n := 0
	kit.Eventually(t, "the third look", func() bool { n++; return n == 3 })
	kit.EventuallyNil(t, "the fifth", func() error {
		if n++; n < 5 {
			return errors.New("not yet")
		}
		return nil
	})
	if n != 5 {
		t.Errorf("it was looked at %d times", n)
	}
}

func TestLog(t *testing.T) {
	l := kit.NewLog()
	log := l.Logger()
	log.Info().Str("agent", "edge-1").Msg("connected")
	log.Info().Str("agent", "edge-2").Int("n", 1).Msg("connected")
	if got := l.Find("message", "connect"); len(got) != 2 {
		t.Errorf("Find() = %v", got)
	}
	if got := l.Find("message", "connect", "agent", "edge-2"); len(got) != 1 {
		t.Errorf("Find() of one agent = %v", got)
	}
	if got := l.Find("n", "1"); len(got) != 0 {
		t.Errorf("Find() of a number = %v", got)
	}
	go log.Warn().Str("error", "it broke").Msg("gone")
	if got := l.WaitAfter(t, 2, "error", "broke"); got["message"] != "gone" {
		t.Errorf("WaitAfter() = %v", got)
	}
}
