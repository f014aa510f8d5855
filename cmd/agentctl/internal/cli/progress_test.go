package cli

import (
	"strings"
	"testing"
)

func TestProgress(t *testing.T) {
	say := func(t *testing.T, width func() int) string {
		t.Helper()
		var out strings.Builder
		p := NewProgress(Streams{Out: NewPlain(&out), Width: width})
		for _, state := range []string{"0 of 2 pods are ready", "0 of 2 pods are ready", "pod \x1b[31mp: what a spoke says", "2 of 2 pods are ready"} {
			if err := p.Say(state); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := p.End(); err != nil {
				t.Fatal(err)
			}
		}
		return out.String()
	}
	for name, c := range map[string]struct {
		width func() int
		want  string
	}{
		"in a pipe each state is a line": {nil,
			"0 of 2 pods are ready\npod \\u001b[31mp: what a spoke says\n2 of 2 pods are ready\n"},
		"on a terminal the line is written over": {func() int { return 80 },
			"\r\x1b[K0 of 2 pods are ready" + "\r\x1b[K0 of 2 pods are ready" + "\r\x1b[Kpod  [31mp: what a spoke says" +
				"\r\x1b[K2 of 2 pods are ready" + "\r\x1b[K2 of 2 pods are ready\n"},
		"on a narrow one it is cut, and whole at the end": {func() int { return 10 },
			"\r\x1b[K0 of 2 p…" + "\r\x1b[K0 of 2 p…" + "\r\x1b[Kpod  [31…" + "\r\x1b[K2 of 2 p…" + "\r\x1b[K2 of 2 pods are ready\n"},
		"on one of unknown width it is not cut": {func() int { return 0 },
			"\r\x1b[K0 of 2 pods are ready" + "\r\x1b[K0 of 2 pods are ready" + "\r\x1b[Kpod  [31mp: what a spoke says" +
				"\r\x1b[K2 of 2 pods are ready" + "\r\x1b[K2 of 2 pods are ready\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := say(t, c.width); got != c.want {
				t.Errorf("it prints %q, want %q", got, c.want)
			}
		})
	}
}
