package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestCodeError(t *testing.T) {
	cause := errors.New("not all could be asked")
	var out, complaint bytes.Buffer
	code := execute("program", func(context.Context, []string) error {
		return fmt.Errorf("check: %w", &CodeError{Err: cause, Code: 3})
	}, nil, &out, &complaint)
	if code != 3 || complaint.String() != "program: check: not all could be asked\n" {
		t.Errorf("it ends with %d and %q", code, complaint.String())
	}
	if err := error(&CodeError{Err: cause, Code: 3}); !errors.Is(err, cause) {
		t.Error("it does not wrap its cause")
	}
}
