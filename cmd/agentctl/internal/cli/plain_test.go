package cli

import (
	"errors"
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"two\nlines\tand a tab":   "two\nlines\tand a tab",
		"é, 語 and 🙂":              "é, 語 and 🙂",
		"\x1b[2K\r":               `\u001b[2K\u000d`,
		"\x7f\u009b":              `\u007f\u009b`,
		"one byte \x9b2J":         "one byte \ufffd2J",
		"\u202erev\u2066\u200f":   `\u202erev\u2066\u200f`,
		"a line \u2028 of theirs": `a line \u2028 of theirs`,
	} {
		for _, step := range []int{1, len(text)} {
			var b strings.Builder
			p := &plain{w: &b}
			for i := 0; i < len(text); i += step {
				if n, err := p.Write([]byte(text[i:min(i+step, len(text))])); err != nil || n != min(step, len(text)-i) {
					t.Fatalf("Write() = %d, %v", n, err)
				}
			}
			if b.String() != want {
				t.Errorf("%q by %d bytes is printed as %q, want %q", text, step, b.String(), want)
			}
		}
	}
	if got, want := PlainError(errors.New("\x1b[2K\rALL\a\u009b2J\x9b\u202er\n\u2028y")).Error(), `\u001b[2K\u000dALL\u0007\u009b2J`+"\ufffd"+`\u202er`+"\n"+`\u2028y`; got != want {
		t.Errorf("an error is %q, want %q", got, want)
	}
}
