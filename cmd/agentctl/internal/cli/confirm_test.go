package cli

import (
	"errors"
	"strings"
	"testing"
)

func TestConfirm(t *testing.T) {
	tests := map[string]struct {
		said string
		want bool
		err  error
	}{
		"yes":                     {"yes\n", true, nil},
		"y, without a line's end": {"y", true, nil},
		"in capitals, with space": {" Y \n", true, nil},
		"no":                      {"n\n", false, nil},
		"only return":             {"\n", false, nil},
		"something else":          {"yesterday\ny\n", false, nil},
		"nobody there":            {"", false, errNoAnswer},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var asked strings.Builder
			got, err := Confirm(Streams{In: strings.NewReader(tt.said), Err: &asked}, "Really?", "--sure")
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("confirm() = %v, %v, want %v, %v", got, err, tt.want, tt.err)
			}
			if err != nil && !strings.HasSuffix(err.Error(), ": say --sure") {
				t.Errorf("confirm() = %v, which does not name the flag", err)
			}
			if !strings.HasPrefix(asked.String(), "Really? (y/N): ") {
				t.Errorf("it asked %q", asked.String())
			}
		})
	}
}
