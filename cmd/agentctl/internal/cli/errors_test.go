package cli

import (
	"errors"
	"testing"
)

func TestOneLine(t *testing.T) {
	err := errors.New("first\n\tsecond\r\x1b[2J\u009bthird, and a blank ")
	if got, want := OneLine(err), "first second [2J third, and a blank "; got != want {
		t.Errorf("oneLine() = %q, want %q", got, want)
	}
}
