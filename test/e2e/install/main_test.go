//go:build linux

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != yq {
		env.Main(m)
		return
	}
	if err := runYQ(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
